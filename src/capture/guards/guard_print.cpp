// Guards as the user reads them, in logs and reports.
#include "capture/cpython/dict.h"
#include "capture/guards/guard_eval.h"
#include "launch/tensor_spec.h"

namespace braze::capture {

namespace {

std::string repr_of(PyObject* o) {
  if (!o) return "nothing";
  Ref s = Ref::steal(PyObject_Repr(o));
  const char* c = s ? PyUnicode_AsUTF8(s.get()) : nullptr;
  if (!c) PyErr_Clear();
  std::string text = c ? c : "?";
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

}  // namespace

std::string print(const Guard& g, const Sources& sources) {
  std::string s = sources.print(g.source);
  auto object = [&] { return repr_of(g.object.get()); };
  auto members = [&] {
    Ref all = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(g.members.size())));
    for (size_t i = 0; i < g.members.size(); ++i)
      PyTuple_SET_ITEM(all.get(), static_cast<Py_ssize_t>(i), Py_NewRef(g.members[i].get()));
    return repr_of(all.get());
  };
  auto name_of = [](const LooseRef& type) { return std::string(reinterpret_cast<PyTypeObject*>(type.get())->tp_name); };
  auto type_name = [&] { return name_of(g.object); };
  std::string out;
  switch (g.kind) {
    case GuardKind::TypeIs: out = "type(" + s + ") is " + type_name(); break;
    case GuardKind::Identity:
      out = s + " is " +
            (PyType_Check(g.object.get()) ? type_name() : "the same " + std::string(Py_TYPE(g.object.get())->tp_name));
      break;
    case GuardKind::WeakIdentity: out = s + " is the same " + Py_TYPE(g.object.get())->tp_name; break;
    case GuardKind::Equal: out = s + " == " + object(); break;
    case GuardKind::Tensor: out = s + " is a tensor of the same kind"; break;
    case GuardKind::Exists: out = s + " exists"; break;
    case GuardKind::Absent: out = s + " does not exist"; break;
    case GuardKind::Lacks: out = s + " has none of " + members(); break;
    case GuardKind::Length: out = "len(" + s + ") == " + std::to_string(g.number); break;
    case GuardKind::DictKeys: out = "list(" + s + ") == " + members(); break;
    case GuardKind::SameObject: out = s + " is " + sources.print(g.other); break;
    case GuardKind::Distinct: out = s + " is not " + sources.print(g.other); break;
    case GuardKind::FloatHolds: out = g.floats->print(sources); break;
    case GuardKind::AllDistinct:
      for (size_t i = 1; i < g.group.size(); ++i) out += (i == 1 ? s + ", " : ", ") + sources.print(g.group[i]);
      out += " are different objects";
      break;
    case GuardKind::SetMembers: out = s + " == " + members(); break;
    case GuardKind::RangeIs: out = s + " == " + object(); break;
    case GuardKind::Answer: {
      std::string arguments = repr_of(PyTuple_GET_ITEM(g.object.get(), 0));
      if (arguments.ends_with(",)")) arguments.replace(arguments.size() - 2, 2, ")");
      out = s + arguments + " == " + repr_of(PyTuple_GET_ITEM(g.object.get(), 1));
      break;
    }
    case GuardKind::Apart:
      for (size_t i = 0; i < static_cast<size_t>(g.number); ++i) out += (i ? ", " : "") + sources.print(g.group[i]);
      out += " share no memory with other inputs";
      break;
  }
  if (g.type && g.kind != GuardKind::Identity && g.kind != GuardKind::WeakIdentity)
    out = "type(" + s + ") is " + name_of(g.type) + ", " + out;
  if (g.line.code) out += "    # " + describe(g.line);
  return out;
}

std::vector<std::string> print(const SizeGuards& g, const Sources& sources) {
  std::vector<std::string> out;
  std::vector<std::string> first(g.symbols.size());
  for (const SizeGuards::Place& p : g.places) {
    std::string text = sources.print(p.source);
    if (p.dim == trace::kStorageOffset)
      text += ".storage_offset()";
    else if (!p.integer)
      text += (p.dim >= 0 ? ".size(" : ".stride(") + std::to_string(p.dim >= 0 ? p.dim : ~p.dim) + ")";
    std::string& f = first[p.symbol];
    if (f.empty()) {
      f = text;
      const auto& s = g.symbols[p.symbol];
      std::string line = g.arena->print(s.symbol) + " = " + text;
      if (s.range.lo > INT64_MIN && s.range.hi < INT64_MAX)
        line +=
            ", " + std::to_string(s.range.lo) + " <= " + g.arena->print(s.symbol) + " <= " + std::to_string(s.range.hi);
      out.push_back(line);
    } else {
      out.push_back(text + " == " + f);
    }
  }
  for (const SizeGuards::Condition& c : g.conditions)
    out.push_back(g.arena->print(c.condition) + (c.line.code ? "    # " + describe(c.line) : ""));
  return out;
}

std::string describe_failure(const Guard& g, const Sources& sources, PyObject* value) {
  std::string out = print(g, sources);
  if (g.kind == GuardKind::Lacks && value)
    for (const LooseRef& key : g.members)
      if (cpython::dict_get(value, key.get())) return out + ": now there is " + repr_of(key.get());
  if (g.kind == GuardKind::Tensor && value) return out + ": " + launch::describe_mismatch(*g.tensor, value);
  bool other_class = g.type && value && reinterpret_cast<PyObject*>(Py_TYPE(value)) != g.type.get();
  if ((g.kind == GuardKind::TypeIs && value) || other_class) return out + ": now " + Py_TYPE(value)->tp_name;
  if (g.kind == GuardKind::Equal) return out + ": now " + repr_of(value);
  if (g.kind == GuardKind::Length && value && PyObject_Length(value) >= 0)
    return out + ": now " + std::to_string(PyObject_Length(value));
  PyErr_Clear();
  return out;
}

}  // namespace braze::capture
