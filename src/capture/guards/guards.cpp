#include "capture/guards/guards.h"

#include <cstring>
#include <string_view>

#include "base/hash.h"
#include "capture/cpython/dict.h"
#include "capture/guards/dynamic.h"
#include "capture/guards/guards_eval.h"

namespace braze::capture {

namespace {

uint64_t hash_of(const Guard& guard) {
  Hasher h;
  h.add(guard.kind);
  h.add(guard.source.index);
  h.add(guard.other.index);
  return h.value();
}

std::vector<LooseRef> items_of(PyObject* tuple) {
  std::vector<LooseRef> out;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) out.push_back(Ref::borrow(PyTuple_GET_ITEM(tuple, i)));
  return out;
}

}  // namespace

bool GuardSet::add(Guard guard) {
  uint64_t hash = hash_of(guard);
  uint32_t known = index_.find(hash, [&](uint32_t id) {
    const Guard& g = items_[id];
    return g.kind == guard.kind && g.source == guard.source && g.other == guard.other && g.number == guard.number &&
           g.group == guard.group && (g.kind != GuardKind::FloatHolds || *g.floats == *guard.floats) && (g.object.get() == guard.object.get() || guard.kind == GuardKind::DictKeys || guard.kind == GuardKind::SetMembers ||
            (guard.kind == GuardKind::Answer && equal_constants(g.object.get(), guard.object.get())));
  });
  if (known != HashIndex::kNone) return false;
  index_.insert(hash, static_cast<uint32_t>(items_.size()));
  items_.push_back(std::move(guard));
  return true;
}

void GuardSet::truncate(size_t n) {
  if (n >= items_.size()) return;
  items_.resize(n);
  index_.clear();
  for (size_t i = 0; i < n; ++i) index_.insert(hash_of(items_[i]), static_cast<uint32_t>(i));
}

void GuardSet::type_is(SourceId s, PyTypeObject* type, UserLine line) {
  add({GuardKind::TypeIs, s, {}, 0, Ref::borrow(reinterpret_cast<PyObject*>(type)), nullptr, line});
}
void GuardSet::identity(SourceId s, PyObject* object, UserLine line) {
  add({GuardKind::Identity, s, {}, 0, Ref::borrow(object), nullptr, line});
}
void GuardSet::weak_identity(SourceId s, PyObject* object, UserLine line) {
  add({GuardKind::WeakIdentity, s, {}, 0, Ref::borrow(object), nullptr, line});
}
void GuardSet::equal(SourceId s, PyObject* object, UserLine line) {
  add({GuardKind::Equal, s, {}, 0, Ref::borrow(object), nullptr, line});
}
void GuardSet::tensor(SourceId s, PyObject* tensor, const std::vector<trace::SymbolicDim>& symbolic, UserLine line) {
  size_t before = items_.size();
  add({GuardKind::Tensor, s, {}, 0, {}, nullptr, line});
  if (items_.size() > before) items_.back().symbolic = symbolic;
  if (items_.size() > before) items_.back().tensor = trace::snapshot(tensor, symbolic);
}
void GuardSet::exists(SourceId s, UserLine line) { add({GuardKind::Exists, s, {}, 0, {}, nullptr, line}); }
void GuardSet::absent(SourceId s, UserLine line) { add({GuardKind::Absent, s, {}, 0, {}, nullptr, line}); }
void GuardSet::length(SourceId s, int64_t n, UserLine line) { add({GuardKind::Length, s, {}, n, {}, nullptr, line}); }
void GuardSet::dict_keys(SourceId s, PyObject* dict, UserLine line) {
  Ref keys = Ref::steal(cpython::keys_in_order(dict));
  add({GuardKind::DictKeys, s, {}, 0, {}, nullptr, line, {}, {}, items_of(keys.get())});
}
void GuardSet::same_object(SourceId a, SourceId b, UserLine line) { add({GuardKind::SameObject, a, b, 0, {}, nullptr, line}); }
void GuardSet::distinct(SourceId a, SourceId b, UserLine line) { add({GuardKind::Distinct, a, b, 0, {}, nullptr, line}); }
void GuardSet::all_distinct(std::vector<SourceId> group, UserLine line) {
  SourceId first = group.front();
  add({GuardKind::AllDistinct, first, {}, 0, {}, nullptr, line, {}, std::move(group)});
}
void GuardSet::set_members(SourceId s, PyObject* set, UserLine line) {
  Ref members = Ref::steal(PySequence_Tuple(set));
  add({GuardKind::SetMembers, s, {}, 0, {}, nullptr, line, {}, {}, items_of(members.get())});
}
void GuardSet::range_is(SourceId s, PyObject* range, UserLine line) {
  add({GuardKind::RangeIs, s, {}, 0, Ref::borrow(range), nullptr, line});
}
void GuardSet::answer(SourceId function, PyObject* arguments, PyObject* answer, UserLine line) {
  add({GuardKind::Answer, function, {}, 0, Ref::steal(PyTuple_Pack(2, arguments, answer)), nullptr, line});
}
void GuardSet::float_holds(FloatCondition condition, UserLine line) {
  SourceId first = condition.sources.front();
  std::vector<SourceId> group = condition.sources;
  add({GuardKind::FloatHolds, first, {}, 0, {}, nullptr, line, {}, std::move(group), {}, std::make_shared<const FloatCondition>(std::move(condition))});
}
void GuardSet::apart(std::vector<SourceId> group, size_t written, UserLine line) {
  SourceId first = group.front();
  add({GuardKind::Apart, first, {}, static_cast<int64_t>(written), {}, nullptr, line, {}, std::move(group)});
}

namespace {

bool same_bits(double a, double b) { return std::memcmp(&a, &b, sizeof a) == 0; }

bool plain_key(PyObject* k) { return PyUnicode_CheckExact(k) || PyLong_CheckExact(k) || k == Py_None || PyBool_Check(k); }

bool same_key(PyObject* key, const LooseRef& want) { return key == want.get() || (plain_key(key) && equal_constants(key, want.get())); }

bool same_members(PyObject* set, const std::vector<LooseRef>& expected) {
  if (!PyAnySet_Check(set) || static_cast<size_t>(PySet_GET_SIZE(set)) != expected.size()) return false;
  PyObject* key;
  Py_ssize_t pos = 0;
  Py_hash_t hash;
  for (size_t i = 0; _PySet_NextEntry(set, &pos, &key, &hash); ++i)
    if (key != expected[i].get() && !equal_constants(key, expected[i].get())) return false;
  return true;
}

bool same_keys(PyObject* dict, const std::vector<LooseRef>& expected) {
  if (!PyDict_Check(dict) || static_cast<size_t>(PyDict_GET_SIZE(dict)) != expected.size()) return false;
  if (PyODict_Check(dict)) {
    Ref keys = Ref::steal(cpython::keys_in_order(dict));
    if (!keys) return PyErr_Clear(), false;
    for (size_t i = 0; i < expected.size(); ++i)
      if (!same_key(PyTuple_GET_ITEM(keys.get(), static_cast<Py_ssize_t>(i)), expected[i])) return false;
    return true;
  }
  PyObject *key, *value;
  Py_ssize_t pos = 0;
  for (size_t i = 0; PyDict_Next(dict, &pos, &key, &value); ++i)
    if (!same_key(key, expected[i])) return false;
  return true;
}

}  // namespace

bool is_compared_by_address(PyObject* member) {
  std::string_view name = Py_TYPE(member)->tp_name;
  bool by_content = plain_key(member) || PyTuple_Check(member) || PyFrozenSet_Check(member) || name.starts_with("numpy.") || name == "torch.device";
  return !by_content;
}

bool equal_constants(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b || Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyLong_CheckExact(a) || PyBytes_CheckExact(a)) return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  if (PyUnicode_CheckExact(a)) return PyUnicode_Compare(a, b) == 0;
  if (PyFloat_CheckExact(a)) return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (PyComplex_CheckExact(a)) {
    Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
    return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
  }
  // A subclass of tuple that adds nothing to it compares by its items too (torch.Size, named tuples).
  if (PyTuple_Check(a)) {
    if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); ++i)
      if (!equal_constants(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i))) return false;
    return true;
  }
  if (PySlice_Check(a)) {
    auto* x = reinterpret_cast<PySliceObject*>(a);
    auto* y = reinterpret_cast<PySliceObject*>(b);
    return equal_constants(x->start, y->start) && equal_constants(x->stop, y->stop) && equal_constants(x->step, y->step);
  }
  if (PyFrozenSet_CheckExact(a)) {
    Ref members = Ref::steal(PySequence_Tuple(b));
    return same_members(a, items_of(members.get()));
  }
  if (std::strncmp(Py_TYPE(a)->tp_name, "numpy.dtype", 11) == 0) return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  // Numbers of NumPy: by their bytes.
  if (std::strncmp(Py_TYPE(a)->tp_name, "numpy.", 6) == 0) {
    Py_buffer x, y;
    if (PyObject_GetBuffer(a, &x, PyBUF_SIMPLE) < 0) return PyErr_Clear(), false;
    bool same = false;
    if (PyObject_GetBuffer(b, &y, PyBUF_SIMPLE) < 0) {
      PyErr_Clear();
    } else {
      same = x.len == y.len && std::memcmp(x.buf, y.buf, static_cast<size_t>(x.len)) == 0;
      PyBuffer_Release(&y);
    }
    PyBuffer_Release(&x);
    return same;
  }
  // torch.device: compared by value, in C.
  static PyTypeObject* device = nullptr;
  if (!device && std::strcmp(Py_TYPE(a)->tp_name, "torch.device") == 0) device = Py_TYPE(a);
  if (device && Py_TYPE(a) == device) {
    int same = PyObject_RichCompareBool(a, b, Py_EQ);
    if (same < 0) PyErr_Clear();
    return same == 1;
  }
  return false;
}

bool holds(const Guard& g, PyObject* v, PyObject* other) {
  switch (g.kind) {
    case GuardKind::Absent: return v == nullptr;
    case GuardKind::SameObject: return v && v == other;
    case GuardKind::Distinct: return v != other;
    default: break;
  }
  if (!v) return false;
  switch (g.kind) {
    case GuardKind::TypeIs: return reinterpret_cast<PyObject*>(Py_TYPE(v)) == g.object.get();
    case GuardKind::Identity:
    case GuardKind::WeakIdentity: return v == g.object.get();
    case GuardKind::Equal: return equal_constants(v, g.object.get());
    case GuardKind::Tensor: return trace::matches(*g.tensor, v) && marks_within(v, g.symbolic);
    case GuardKind::Exists: return true;
    case GuardKind::Length:
      if (PyList_Check(v)) return PyList_GET_SIZE(v) == g.number;
      if (PyTuple_Check(v)) return PyTuple_GET_SIZE(v) == g.number;
      if (PyDict_Check(v)) return PyDict_GET_SIZE(v) == g.number;
      if (PyAnySet_Check(v)) return PySet_GET_SIZE(v) == g.number;
      return false;
    case GuardKind::DictKeys: return same_keys(v, g.members);
    case GuardKind::SetMembers: return same_members(v, g.members);
    case GuardKind::RangeIs: return Py_TYPE(v) == &PyRange_Type && PyObject_RichCompareBool(v, g.object.get(), Py_EQ) == 1;
    case GuardKind::Answer: {
      Ref now = Ref::steal(PyObject_Call(v, PyTuple_GET_ITEM(g.object.get(), 0), nullptr));
      if (!now) return PyErr_Clear(), false;
      return equal_constants(now.get(), PyTuple_GET_ITEM(g.object.get(), 1));
    }
    default: return false;
  }
}

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
    for (size_t i = 0; i < g.members.size(); ++i) PyTuple_SET_ITEM(all.get(), static_cast<Py_ssize_t>(i), Py_NewRef(g.members[i].get()));
    return repr_of(all.get());
  };
  auto type_name = [&] { return std::string(reinterpret_cast<PyTypeObject*>(g.object.get())->tp_name); };
  std::string out;
  switch (g.kind) {
    case GuardKind::TypeIs: out = "type(" + s + ") is " + type_name(); break;
    case GuardKind::Identity: out = s + " is " + (PyType_Check(g.object.get()) ? type_name() : "the same " + std::string(Py_TYPE(g.object.get())->tp_name)); break;
    case GuardKind::WeakIdentity: out = s + " is the same " + Py_TYPE(g.object.get())->tp_name; break;
    case GuardKind::Equal: out = s + " == " + object(); break;
    case GuardKind::Tensor: out = s + " is a tensor of the same kind"; break;
    case GuardKind::Exists: out = s + " exists"; break;
    case GuardKind::Absent: out = s + " does not exist"; break;
    case GuardKind::Length: out = "len(" + s + ") == " + std::to_string(g.number); break;
    case GuardKind::DictKeys: out = "list(" + s + ") == " + members(); break;
    case GuardKind::SameObject: out = s + " is " + sources.print(g.other); break;
    case GuardKind::Distinct: out = s + " is not " + sources.print(g.other); break;
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
    case GuardKind::FloatHolds: out = g.floats->print(sources); break;
    case GuardKind::Apart:
      for (size_t i = 0; i < static_cast<size_t>(g.number); ++i) out += (i ? ", " : "") + sources.print(g.group[i]);
      out += " share no memory with other inputs";
      break;
  }
  if (g.line.code) out += "    # " + describe(g.line);
  return out;
}

std::vector<std::string> print(const SizeGuards& g, const Sources& sources) {
  std::vector<std::string> out;
  std::vector<std::string> first(g.symbols.size());
  for (const SizeGuards::Place& p : g.places) {
    std::string text = sources.print(p.source);
    if (p.dim == trace::kStorageOffset) text += ".storage_offset()";
    else if (!p.integer) text += (p.dim >= 0 ? ".size(" : ".stride(") + std::to_string(p.dim >= 0 ? p.dim : ~p.dim) + ")";
    std::string& f = first[p.symbol];
    if (f.empty()) {
      f = text;
      const auto& s = g.symbols[p.symbol];
      std::string line = g.arena->print(s.symbol) + " = " + text;
      if (s.range.lo > INT64_MIN && s.range.hi < INT64_MAX)
        line += ", " + std::to_string(s.range.lo) + " <= " + g.arena->print(s.symbol) + " <= " + std::to_string(s.range.hi);
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
  if (g.kind == GuardKind::Tensor && value) return out + ": " + trace::describe_mismatch(*g.tensor, value);
  if (g.kind == GuardKind::TypeIs && value) return out + ": now " + Py_TYPE(value)->tp_name;
  if (g.kind == GuardKind::Equal) return out + ": now " + repr_of(value);
  if (g.kind == GuardKind::Length && value && PyObject_Length(value) >= 0) return out + ": now " + std::to_string(PyObject_Length(value));
  PyErr_Clear();
  return out;
}

}  // namespace braze::capture
