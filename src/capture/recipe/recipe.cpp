#include "capture/recipe/recipe.h"

#include "base/check.h"
#include "capture/cpython/class_in_c.h"
#include "capture/cpython/set_table.h"

namespace braze::capture {

Reg Recipe::load(SourceId source) {
  auto [it, fresh] = loads_.emplace(source.index, next_);
  if (fresh) {
    Step s{StepKind::Load, next_++};
    s.source = source;
    steps_.push_back(std::move(s));
  }
  return it->second;
}

Reg Recipe::graph_output(int64_t i) {
  auto [it, fresh] = outputs_.emplace(i, next_);
  if (fresh) {
    Step s{StepKind::GraphOutput, next_++};
    s.number = i;
    steps_.push_back(std::move(s));
  }
  return it->second;
}

Reg Recipe::constant(PyObject* object) {
  auto [it, fresh] = constants_.emplace(object, next_);
  if (fresh) {
    Step s{StepKind::Const, next_++};
    s.object = Ref::borrow(object);
    steps_.push_back(std::move(s));
  }
  return it->second;
}

Reg Recipe::integer(int64_t i, bool truth) {
  Step s{truth ? StepKind::Truth : StepKind::Integer, next_++};
  s.number = i;
  steps_.push_back(std::move(s));
  return steps_.back().dst;
}

Reg Recipe::make(StepKind kind, std::vector<Reg> args, PyObject* object) {
  Step s{kind, next_++};
  s.object = Ref::borrow(object);
  s.args = std::move(args);
  steps_.push_back(std::move(s));
  return steps_.back().dst;
}

void Recipe::loosen(const std::unordered_set<PyObject*>& objects) {
  for (Step& s : steps_)
    if (s.object && objects.count(s.object.get())) s.object.loosen();
}

void Recipe::effect(StepKind kind, std::vector<Reg> args, PyObject* object) {
  Step s{kind};
  s.object = Ref::borrow(object);
  s.args = std::move(args);
  steps_.push_back(std::move(s));
}

namespace {

// Instances without their constructor: what copy.copy does. `object.__new__` refuses types whose C base has its own.
PyObject* bare_instance(PyObject* type) {
  if (!PyType_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "not a type");
    return nullptr;
  }
  auto* t = reinterpret_cast<PyTypeObject*>(type);
  Ref args = Ref::steal(PyTuple_New(0));
  return class_in_c(t)->tp_new(t, args.get(), nullptr);
}

PyObject* make_function(const Step& s, PyObject** regs) {
  auto at = [&](size_t i) { return i < s.args.size() && s.args[i] != kNoReg ? regs[s.args[i]] : nullptr; };
  Ref fn = Ref::steal(PyFunction_NewWithQualName(at(0), at(1), at(2)));
  if (!fn) return nullptr;
  if (at(3) && PyFunction_SetDefaults(fn.get(), at(3)) < 0) return nullptr;
  if (at(4) && PyFunction_SetKwDefaults(fn.get(), at(4)) < 0) return nullptr;
  if (at(5) && PyFunction_SetClosure(fn.get(), at(5)) < 0) return nullptr;
  if (at(6) && PyFunction_SetAnnotations(fn.get(), at(6)) < 0) return nullptr;
  return fn.release();
}

// The arguments from number `first` on.
std::vector<PyObject*> registers(const Step& s, size_t first, PyObject** regs) {
  std::vector<PyObject*> out;
  for (size_t i = first; i < s.args.size(); ++i) out.push_back(regs[s.args[i]]);
  return out;
}

PyObject* build(const Step& s, PyObject** regs) {
  auto at = [&](size_t i) { return s.args[i] == kNoReg ? nullptr : regs[s.args[i]]; };
  size_t n = s.args.size();
  switch (s.kind) {
    case StepKind::Tuple: {
      PyObject* t = PyTuple_New(static_cast<Py_ssize_t>(n));
      for (size_t i = 0; t && i < n; ++i) PyTuple_SET_ITEM(t, i, Py_NewRef(at(i)));
      return t;
    }
    case StepKind::List: {
      PyObject* t = PyList_New(static_cast<Py_ssize_t>(n));
      for (size_t i = 0; t && i < n; ++i) PyList_SET_ITEM(t, i, Py_NewRef(at(i)));
      return t;
    }
    case StepKind::Set:
    case StepKind::FrozenSet: {
      Ref t = Ref::steal(s.kind == StepKind::Set ? PySet_New(nullptr) : PyFrozenSet_New(nullptr));
      return t && set_becomes(t.get(), at(0), registers(s, 1, regs)) ? t.release() : nullptr;
    }
    case StepKind::Dict: {
      Ref t = Ref::steal(PyDict_New());
      for (size_t i = 0; t && i < n; i += 2)
        if (PyDict_SetItem(t.get(), at(i), at(i + 1)) < 0) return nullptr;
      return t.release();
    }
    case StepKind::Slice: return PySlice_New(at(0), at(1), n > 2 ? at(2) : nullptr);
    case StepKind::NewObject: return bare_instance(at(0));
    case StepKind::NewCell: return PyCell_New(n ? at(0) : nullptr);
    case StepKind::Function: return make_function(s, regs);
    case StepKind::BoundMethod: return PyMethod_New(at(0), at(1));
    case StepKind::Call: {
      std::vector<PyObject*> args(n);
      for (size_t i = 1; i < n; ++i) args[i] = at(i);
      size_t kw = s.object ? PyTuple_GET_SIZE(s.object.get()) : 0;
      return PyObject_Vectorcall(at(0), args.data() + 1, (n - 1 - kw) | PY_VECTORCALL_ARGUMENTS_OFFSET, s.object.get());
    }
    default: break;
  }
  PyErr_SetString(PyExc_SystemError, "braze: not a step with a result");
  return nullptr;
}

// Below a subclass's own __setitem__. An OrderedDict keeps its order beside the dict.
int set_raw(PyObject* dict, PyObject* key, PyObject* value) {
  return PyODict_Check(dict) ? PyODict_SetItem(dict, key, value) : PyDict_SetItem(dict, key, value);
}

int effect(const Step& s, PyObject** regs) {
  auto at = [&](size_t i) { return s.args[i] == kNoReg ? nullptr : regs[s.args[i]]; };
  size_t n = s.args.size();
  switch (s.kind) {
    case StepKind::SetAttr: return PyObject_SetAttr(at(0), s.object.get(), at(1));
    case StepKind::SetAttrRaw: return PyObject_GenericSetAttr(at(0), s.object.get(), at(1));
    case StepKind::DelAttr: return PyObject_GenericSetAttr(at(0), s.object.get(), nullptr);
    case StepKind::SetItem:
      return PyDict_Check(at(0)) ? set_raw(at(0), at(1), at(2)) : PyObject_SetItem(at(0), at(1), at(2));
    case StepKind::DelItem:
      if (PyODict_Check(at(0))) return PyODict_DelItem(at(0), at(1));
      return PyDict_Check(at(0)) ? PyDict_DelItem(at(0), at(1)) : PyObject_DelItem(at(0), at(1));
    case StepKind::ListAssign: {
      Ref t = Ref::steal(PyList_New(static_cast<Py_ssize_t>(n) - 1));
      if (!t) return -1;
      for (size_t i = 1; i < n; ++i) PyList_SET_ITEM(t.get(), i - 1, Py_NewRef(at(i)));
      return PyList_SetSlice(at(0), 0, PyList_GET_SIZE(at(0)), t.get());
    }
    case StepKind::DictAssign: {
      if (PyODict_Check(at(0))) {
        Ref none = Ref::steal(PyObject_CallMethod(reinterpret_cast<PyObject*>(&PyODict_Type), "clear", "O", at(0)));
        if (!none) return -1;
      } else {
        PyDict_Clear(at(0));
      }
      for (size_t i = 1; i < n; i += 2)
        if (set_raw(at(0), at(i), at(i + 1)) < 0) return -1;
      return 0;
    }
    case StepKind::SetAssign: return set_becomes(at(0), at(1), registers(s, 2, regs)) ? 0 : -1;
    case StepKind::CellSet: return PyCell_Set(at(0), n > 1 ? at(1) : nullptr);
    default: break;
  }
  PyErr_SetString(PyExc_SystemError, "braze: not a side effect");
  return -1;
}

constexpr const char* kStepNames[] = {"load",     "graph_output", "const",        "integer",    "truth",
                                      "tuple",    "list",         "set",          "frozenset",  "dict",
                                      "slice",    "new_object",   "new_cell",     "function",   "bound_method",
                                      "call",     "set_attr",     "set_attr_raw", "del_attr",   "set_item",
                                      "del_item", "list_assign",  "dict_assign",  "set_assign", "cell_set"};

}  // namespace

bool run(const Recipe& recipe, PyObject* const* loads, PyObject* const* outputs, const int64_t* integers,
         PyObject** regs) {
  size_t next_load = 0;
  for (const Step& s : recipe.steps()) {
    switch (s.kind) {
      case StepKind::Load: {
        PyObject* v = loads[next_load++];
        Py_XINCREF(v);
        regs[s.dst] = v;
        break;
      }
      case StepKind::GraphOutput: regs[s.dst] = Py_NewRef(outputs[s.number]); break;
      case StepKind::Const: regs[s.dst] = Py_NewRef(s.object.get()); break;
      case StepKind::Integer:
        if (!(regs[s.dst] = PyLong_FromLongLong(integers[s.number]))) return false;
        break;
      case StepKind::Truth: regs[s.dst] = PyBool_FromLong(integers[s.number] != 0); break;
      default:
        if (s.dst != kNoReg) {
          if (!(regs[s.dst] = build(s, regs))) return false;
        } else if (effect(s, regs) < 0) {
          return false;
        }
    }
  }
  return true;
}

std::string Recipe::print(const Sources& sources) const {
  std::string out;
  auto repr = [](PyObject* o) {
    Ref r = Ref::steal(PyObject_Repr(o));
    const char* c = r ? PyUnicode_AsUTF8(r.get()) : nullptr;
    if (!c) PyErr_Clear();
    return std::string(c ? c : "?").substr(0, 60);
  };
  for (const Step& s : steps_) {
    out += s.dst == kNoReg ? "  " : "  r" + std::to_string(s.dst) + " = ";
    out += kStepNames[static_cast<size_t>(s.kind)];
    if (s.kind == StepKind::Load) out += " " + sources.print(s.source);
    if (s.kind == StepKind::GraphOutput || s.kind == StepKind::Integer || s.kind == StepKind::Truth)
      out += " " + std::to_string(s.number);
    for (Reg r : s.args) out += r == kNoReg ? " -" : " r" + std::to_string(r);
    if (s.object) out += " " + repr(s.object.get());
    out += "\n";
  }
  if (result != kNoReg) out += "  return r" + std::to_string(result) + "\n";
  for (const FrameImage& f : frames) {
    out += "  frame " + repr(f.code->co_qualname) + " at " + std::to_string(f.instruction) + ": locals";
    for (Reg r : f.locals) out += r == kNoReg ? " -" : r == kAsBefore ? " =" : " r" + std::to_string(r);
    out += ", stack";
    for (Reg r : f.stack) out += r == kNoReg ? " -" : " r" + std::to_string(r);
    out += "\n";
  }
  return out;
}

}  // namespace braze::capture
