// From variables to real values, and calls into CPython and PyTorch on them.

#include "capture/builtins/builtins.h"
#include "capture/cpython/set_table.h"
#include "capture/eval/callback.h"
#include "capture/eval/index_protocol.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/open_sizes.h"
#include "capture/eval/operands.h"
#include "capture/eval/translator.h"
#include "capture/guards/torch_queries.h"
#include "capture/vars/all.h"
#include "capture/vars/random_generator.h"
#include "trace/pytorch/names.h"
#include "trace/untraced.h"

namespace braze::capture {

bool RealCalls::is_python_constant(Variable* v) {
  v = tr_.force(v);
  tr_.check_stack();
  if (v->is(Kind::Constant) || v->is(Kind::Sym)) return true;
  if (v->is(Kind::List) && v->type() != &PyList_Type) return false;
  if (v->is(Kind::Dict) && v->type() != &PyDict_Type) return false;
  if (v->is(Kind::Real)) {
    PyObject* o = v->as_constant();
    return PyType_Check(o) || PyCFunction_Check(o);
  }
  return holds_python_constants(v);
}

bool RealCalls::holds_python_constants(Variable* v) {
  if (v->is(Kind::Tuple) || v->is(Kind::List)) {
    for (Variable* e : static_cast<SequenceVariable*>(v)->elements)
      if (!is_python_constant(e)) return false;
    return true;
  }
  if (v->is(Kind::Dict)) {
    for (const auto& e : v->as<DictVariable>()->entries(tr_))
      if (!is_python_constant(e.key) || !is_python_constant(e.value)) return false;
    return true;
  }
  if (v->is(Kind::Set)) {
    for (Variable* e : v->as<SetVariable>()->elements())
      if (!is_python_constant(e)) return false;
    return true;
  }
  if (v->is(Kind::Slice)) {
    for (Variable* e : v->as<SliceVariable>()->parts)
      if (!is_python_constant(e)) return false;
    return true;
  }
  return false;
}

void RealCalls::guard_member(Variable* v) {
  PyObject* member = constant_of(v);
  if (!member || is_fixed_type(v->type()) || !PyObject_TypeCheck(member, library().enum_)) return;
  SourceId own = tr_.sources().instance_dict(tr_.sources().constant(member));
  for (const char* name : {"_name_", "_value_"}) {
    Ref now = Ref::steal(native::attr(Ground::guarded(own), member, name));
    if (!now)
      PyErr_Clear();
    else
      tr_.guard_identity(tr_.sources().dict_item(own, tr_.intern(name)), now.get());
  }
}

namespace {

// Special methods that functions in C call.
constexpr const char* kMethods[] = {
    "__abs__",
    "__add__",
    "__and__",
    "__bool__",
    "__bytes__",
    "__call__",
    "__ceil__",
    "__complex__",
    "__contains__",
    "__divmod__",
    "__eq__",
    "__float__",
    "__floor__",
    "__floordiv__",
    "__fspath__",
    "__ge__",
    "__getitem__",
    "__gt__",
    "__hash__",
    "__iadd__",
    "__index__",
    "__int__",
    "__invert__",
    "__iter__",
    "__le__",
    "__len__",
    "__length_hint__",
    "__lshift__",
    "__lt__",
    "__matmul__",
    "__mod__",
    "__mul__",
    "__ne__",
    "__neg__",
    "__or__",
    "__pos__",
    "__pow__",
    "__radd__",
    "__rand__",
    "__rdivmod__",
    "__reversed__",
    "__rfloordiv__",
    "__rlshift__",
    "__rmatmul__",
    "__rmod__",
    "__rmul__",
    "__ror__",
    "__round__",
    "__rpow__",
    "__rrshift__",
    "__rshift__",
    "__rsub__",
    "__rtruediv__",
    "__rxor__",
    "__sub__",
    "__truediv__",
    "__trunc__",
    "__xor__",
    "__instancecheck__",
    "__subclasscheck__",
};
constexpr const char* kMethodsOfTexts[] = {"__repr__", "__str__", "__format__"};

}  // namespace

void RealCalls::check_methods(Variable* v, Methods methods) {
  v = tr_.force(v);
  tr_.check_stack();
  auto each = [&](const auto& list) {
    for (Variable* e : list) check_methods(e, methods);
  };
  if (v->is(Kind::Tuple) || v->is(Kind::List)) each(static_cast<SequenceVariable*>(v)->elements);
  if (v->is(Kind::Set)) each(v->as<SetVariable>()->elements());
  if (v->is(Kind::Slice)) each(v->as<SliceVariable>()->parts);
  if (v->is(Kind::Dict))
    for (const auto& e : v->as<DictVariable>()->entries(tr_))
      check_methods(e.key, methods), check_methods(e.value, methods);
  PyTypeObject* type = v->type();
  if ((!v->is(Kind::Constant) && !v->is(Kind::Real)) || is_fixed_type(type) || tr_.is_made_class(type)) return;
  auto look = [&](const char* name) {
    if (has_own(tr_, type, name))
      tr_.unsupported(Reason::UnknownFunction,
                      std::string("a C function on ") + v->describe() + ", whose class has a " + name);
  };
  if (methods != Methods::Texts)
    for (const char* name : kMethods) look(name);
  if (methods != Methods::ButTexts)
    for (const char* name : kMethodsOfTexts) look(name);
}

Ref RealCalls::to_python(Variable* v) {
  v = tr_.force(v);
  tr_.check_stack();
  auto closed = [&](Variable* key) {  // what is hashed has one value
    OpenSizes open(false);
    return to_python(key);
  };
  switch (v->kind) {
    case Kind::Constant: guard_member(v); return v->as<ConstantVariable>()->value;
    case Kind::Sym:
      return OpenSizes::on() && v->type() == &PyLong_Type ? v->as<SymVariable>()->value
                                                          : to_python(v->as<SymVariable>()->specialise(tr_));
    case Kind::Tensor: return Ref::borrow(v->as<TensorVariable>()->value(tr_));
    case Kind::Tuple: {
      auto* t = v->as<TupleVariable>();
      Ref out = Ref::steal(PyTuple_New(t->len(tr_)));
      for (size_t i = 0; i < t->elements.size(); ++i)
        PyTuple_SET_ITEM(out.get(), static_cast<Py_ssize_t>(i), to_python(t->elements[i]).release());
      if (t->cls == &PyTuple_Type) return out;
      if (t->cls == library().size || is_structseq(t->cls)) {
        out = Ref::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(t->cls), out.get()));
      } else {
        Ref args = Ref::steal(PyTuple_Pack(1, out.get()));
        out = Ref::steal(PyTuple_Type.tp_new(t->cls, args.get(), nullptr));
      }
      if (!out) tr_.raise_current();
      return out;
    }
    case Kind::List: {
      auto* l = v->as<ListVariable>();
      Ref out = Ref::steal(PyList_New(l->len(tr_)));
      for (size_t i = 0; i < l->elements.size(); ++i)
        PyList_SET_ITEM(out.get(), static_cast<Py_ssize_t>(i), to_python(l->elements[i]).release());
      if (l->type() != library().deque) return out;
      Ref most = l->maxlen < 0 ? Ref::borrow(Py_None) : Ref::steal(PyLong_FromLongLong(l->maxlen));
      out = Ref::steal(
          PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(l->type()), out.get(), most.get(), nullptr));
      if (!out) tr_.raise_current();
      return out;
    }
    case Kind::Dict: {
      Ref out = Ref::steal(PyDict_New());
      for (const auto& e : v->as<DictVariable>()->entries(tr_)) {
        Ref key = closed(e.key), value = to_python(e.value);
        if (PyDict_SetItem(out.get(), key.get(), value.get()) < 0) tr_.raise_current();
      }
      if (v->type() == library().ordered_dict)
        out = Ref::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(v->type()), out.get()));
      if (v->type() == library().default_dict) {
        Variable* factory = v->as<DictVariable>()->default_factory;
        Ref made_by = factory ? to_python(factory) : Ref::borrow(Py_None);
        out = Ref::steal(
            PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(v->type()), made_by.get(), out.get(), nullptr));
      }
      if (!out) tr_.raise_current();
      return out;
    }
    case Kind::Set: {
      Ref out = Ref::steal(v->type() == &PyFrozenSet_Type ? PyFrozenSet_New(nullptr) : PySet_New(nullptr));
      std::vector<Ref> owned;
      std::vector<PyObject*> elements;
      for (Variable* e : v->as<SetVariable>()->items(tr_)) elements.push_back(owned.emplace_back(closed(e)).get());
      if (!set_becomes(out.get(), v->as<SetVariable>()->keys(), elements)) tr_.raise_current();
      return out;
    }
    case Kind::Slice: {
      auto* s = v->as<SliceVariable>();
      Ref a = to_python(s->parts[0]), b = to_python(s->parts[1]), c = to_python(s->parts[2]);
      return Ref::steal(PySlice_New(a.get(), b.get(), c.get()));
    }
    case Kind::Real:
      if (tr_.host.hosting() && torch_rule(v->as_constant()) == TorchRule::Host && wraps_user_code(v->as_constant()))
        return tr_.host.callback(v);
      return Ref::borrow(v->as_constant());
    case Kind::Iterator:
    case Kind::Generator:
    case Kind::DictView: {
      // Of one that was there before it shows what the function takes from it.
      if (!tr_.host.hosting() || v->source.valid())
        tr_.unsupported(Reason::UnknownFunction, v->describe() + " given to a C function");
      Variable* all = [&] {
        // Iterating may run code of the user's.
        OpenSizes open(false);
        HostCalls::Hosting host(tr_.host, false);
        return tr_.list(v->items(tr_));
      }();
      return to_python(all);
    }
    case Kind::Host: return v->as<HostVariable>()->object;
    case Kind::Object:
      if (tr_.host.hosting() && tr_.torch_functions.of(v->type()) == TorchFunction::Own)
        return tr_.torch_functions.stand_in(v);
      [[fallthrough]];
    default:
      if (tr_.host.hosting()) return tr_.host.callback(v);
      tr_.unsupported(Reason::UnknownFunction, v->describe() + " given to a C function");
  }
}

bool RealCalls::are_values(const Args& args) {
  auto is_value = [&](Variable* v) {
    v = tr_.force(v);
    if (v->is(Kind::Object)) return tr_.torch_functions.of(v->type()) != TorchFunction::None;
    return !v->is(Kind::Function) && !v->is(Kind::BoundMethod) && !v->is(Kind::Partial) && !v->is(Kind::Module);
  };
  return std::all_of(args.pos.begin(), args.pos.end(), is_value) &&
         std::all_of(args.kw.begin(), args.kw.end(), [&](const auto& kw) { return is_value(kw.second); });
}

bool RealCalls::has_tensor(const Args& args) {
  std::function<bool(Variable*)> in = [&](Variable* v) -> bool {
    v = tr_.force(v);
    if (v->is(Kind::Tensor)) return true;
    if (v->is(Kind::Tuple) || v->is(Kind::List)) {
      for (Variable* e : static_cast<SequenceVariable*>(v)->elements)
        if (in(e)) return true;
    }
    return false;
  };
  for (Variable* v : args.pos)
    if (in(v)) return true;
  for (auto& [k, v] : args.kw)
    if (in(v)) return true;
  return false;
}

namespace {

struct RealArgs {
  std::vector<Ref> owned;
  std::vector<PyObject*> pos;
  Ref kw;
};

}  // namespace

static RealArgs convert(Translator& tr, const Args& args, bool open) {
  OpenSizes sizes(open);
  RealArgs out;
  for (Variable* v : args.pos) {
    out.owned.push_back(tr.real.to_python(v));
    out.pos.push_back(out.owned.back().get());
  }
  if (!args.kw.empty()) {
    out.kw = Ref::steal(PyDict_New());
    for (auto& [k, v] : args.kw) PyDict_SetItem(out.kw.get(), k, tr.real.to_python(v).get());
  }
  return out;
}

graph::Location RealCalls::location() const {
  UserLine at = tr_.line();
  graph::Location loc;
  if (at.code) {
    loc.file = PyUnicode_AsUTF8(at.code->co_filename);
    loc.function = PyUnicode_AsUTF8(at.code->co_qualname);
    loc.line = at.line;
  }
  return loc;
}

// Functions that a context of a device places.
static bool is_factory(PyObject* fn) {
  static PyObject* all = [] {
    PyObject* set = PyObject_CallNoArgs(pytorch::get(pytorch::Name::device_constructors));
    PyErr_Clear();
    return set;
  }();
  int found = all ? PySet_Contains(all, fn) : 0;
  if (found < 0) PyErr_Clear();
  return found == 1;
}

// Functions whose results hold whatever is there, but for what deterministic algorithms fill it with: then eager calls
// make them. That mode is part of the state that an entry is for.
static bool is_filled(PyObject* fn) {
  static const std::vector<PyObject*> uninitialised = [] {
    std::vector<PyObject*> all;
    auto take = [&](PyObject* of, const char* name) {
      if (PyObject* f = native::attr(Ground::fixed(), of, name)) all.push_back(f);
      PyErr_Clear();
    };
    for (const char* name : {"empty", "empty_like", "empty_strided", "empty_permuted"}) take(library().torch, name);
    for (const char* name : {"new_empty", "new_empty_strided"})
      take(reinterpret_cast<PyObject*>(library().tensor), name);
    return all;
  }();
  if (std::find(uninitialised.begin(), uninitialised.end(), fn) == uninitialised.end()) return false;
  auto on = [](pytorch::Name name) {
    Ref r = Ref::steal(PyObject_CallNoArgs(pytorch::get(name)));
    PyErr_Clear();
    return r.get() == Py_True;
  };
  return on(pytorch::Name::get_deterministic_algorithms) &&
         on(pytorch::Name::get_deterministic_fill_uninitialized_memory);
}

Variable* RealCalls::call_torch(PyObject* fn, const Args& args) {
  if (is_filled(fn)) tr_.unsupported("uninitialised memory that deterministic algorithms fill");
  if (tr_.torch_functions.overrides(args)) return tr_.host.call_overridden(fn, args);
  if (Variable* drawn = call_with_generator(tr_, fn, args)) return drawn;
  if (tr_.torch_functions.device() && is_factory(fn)) {
    // Said in the call: a graph of torch's functions runs outside of the context.
    bool given = false;
    for (auto& [name, v] : args.kw)
      given |= PyUnicode_CompareWithASCIIString(name, "device") == 0 && !is_none(tr_.force(v));
    if (!given) {
      Args placed = args;
      placed.take_kw("device");
      placed.kw.emplace_back(tr_.intern("device"), tr_.constant(tr_.torch_functions.device(), Ground::pure(args)));
      return record_call(fn, placed);
    }
  }
  return record_call(fn, args);
}

Variable* RealCalls::record_call(PyObject* fn, const Args& args) {
  RealArgs real = convert(tr_, args, /*open=*/true);
  tr_.call_of_torch();
  Ref result = Ref::steal(tr_.tracer().call(fn, real.pos.data(), real.pos.size(), real.kw.get(), location()));
  ++tr_.segment().num_calls;
  if (!result) tr_.raise_current();
  // torch._foreach_add_ and the like give the list that they were given.
  if (PyList_CheckExact(result.get()) || PyTuple_CheckExact(result.get()))
    for (size_t i = 0; i < args.pos.size(); ++i)
      if (real.pos[i] == result.get()) return tr_.force(args.pos[i]);
  Variable* out = nullptr;
  for (auto& [name, v] : args.kw)
    if (PyUnicode_CompareWithASCIIString(name, "out") == 0) out = tr_.force(v);
  // PyTorch's functions of several operators may leave `out` as it is where it is none of PyTorch's own tensors, as in
  // a capture.
  if (out && out->is(Kind::Tensor) && PyObject_TypeCheck(result.get(), library().tensor) &&
      out->as<TensorVariable>()->value(tr_) != result.get())
    return write_out(out->as<TensorVariable>(), tr_.from_python(std::move(result), Ground::pure(args)));
  return tr_.from_python(std::move(result), Ground::pure(args));
}

Variable* RealCalls::write_out(TensorVariable* out, Variable* made) {
  auto shape = [&](Variable* v) { return Ref::steal(native::of_tensor(v->as<TensorVariable>()->value(tr_), "shape")); };
  made = tr_.force(made);
  Ref there = shape(out), wanted = shape(made);
  if (!there || !wanted || PyObject_RichCompareBool(there.get(), wanted.get(), Py_EQ) != 1) {
    PyErr_Clear();
    tr_.unsupported("`out` of another size than the result");
  }
  static PyObject* copy = native::type_attr(Ground::fixed(), library().tensor, PyUnicode_InternFromString("copy_"));
  record_call(copy, Args{{out, made}, {}});
  return out;
}

Variable* RealCalls::query_torch(PyObject* fn, const Args& args) {
  // Functions of a module in C that tell of the process's state tell no mode of it.
  bool of_state = query_ground(fn) && PyCFunction_Check(fn) && PyCFunction_GET_SELF(fn) &&
                  PyModule_Check(PyCFunction_GET_SELF(fn)) && !has_tensor(args);
  if (!of_state && tr_.torch_functions.overrides(args)) return tr_.host.call_overridden(fn, args);
  RealArgs real = convert(tr_, args, /*open=*/true);
  Ref result = Ref::steal(PyObject_VectorcallDict(fn, real.pos.data(), real.pos.size(), real.kw.get()));
  if (!result) tr_.raise_current();
  if (query_ground(fn) == QueryGround::Asked) guard_answer(fn, real.pos, result.get());
  return tr_.from_python(std::move(result), Ground::pure(args));
}

void RealCalls::guard_answer(PyObject* fn, const std::vector<PyObject*>& args, PyObject* answer) {
  if (!is_constant_type(Py_TYPE(answer)))
    tr_.unsupported(Reason::UnknownFunction, "an answer of class " + std::string(Py_TYPE(answer)->tp_name));
  Ref given = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(args.size())));
  for (size_t i = 0; i < args.size(); ++i)
    PyTuple_SET_ITEM(given.get(), static_cast<Py_ssize_t>(i), Py_NewRef(args[i]));
  tr_.guards().answer(tr_.sources().constant(fn), given.get(), answer, tr_.line());
}

// Functions of numbers alone, which make no text of what they are given.
static bool is_of_numbers(PyObject* fn) {
  if (!PyCFunction_Check(fn)) return false;
  PyObject* module = PyCFunction_GET_SELF(fn);
  std::string_view name = module && PyModule_Check(module) ? PyModule_GetName(module) : "";
  std::string_view function = reinterpret_cast<PyCFunctionObject*>(fn)->m_ml->ml_name;
  return name == "math" || name == "cmath" ||
         (name == "builtins" &&
          (function == "abs" || function == "pow" || function == "divmod" || function == "round" || function == "sum"));
}

Variable* RealCalls::call_pure(PyObject* fn, const Args& given) {
  Args args = as_numbers(tr_, fn, given);
  const Methods methods = is_of_numbers(fn) ? Methods::ButTexts : Methods::All;
  // A text may be made of what a class tells of itself.
  bool of_text = PyCFunction_Check(fn) && PyCFunction_GET_SELF(fn) && PyUnicode_Check(PyCFunction_GET_SELF(fn));
  auto take = [&](Variable* v) {
    if (!is_python_constant(v)) tr_.unsupported(Reason::UnknownFunction, "a C function on " + tr_.force(v)->describe());
    if (of_text && tr_.force(v)->is(Kind::Real)) tr_.format(v, "", 0);
    check_methods(v, methods);
  };
  for (Variable* v : args.pos) take(v);
  for (auto& [k, v] : args.kw) take(v);
  RealArgs real = convert(tr_, args, /*open=*/false);
  Ref result = Ref::steal(PyObject_VectorcallDict(fn, real.pos.data(), real.pos.size(), real.kw.get()));
  if (!result) tr_.raise_current();
  // What can change, or is used up, would be shared by all calls of the compiled code.
  PyObject* o = result.get();
  bool known_kind = is_constant_type(Py_TYPE(o)) || PyObject_TypeCheck(o, library().enum_) || PyType_Check(o) ||
                    PyTuple_Check(o) || PyList_CheckExact(o) || PyDict_CheckExact(o) || PyAnySet_CheckExact(o) ||
                    PySlice_Check(o) || PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o);
  std::string_view class_name = Py_TYPE(o)->tp_name;  // NumPy's limits of a type, which it keeps
  known_kind |= class_name == "finfo" || class_name == "iinfo";
  if (!known_kind &&
      (Py_TYPE(o)->tp_iternext || !Py_TYPE(o)->tp_hash || Py_TYPE(o)->tp_hash == PyObject_HashNotImplemented))
    tr_.unsupported(Reason::UnknownFunction,
                    std::string("an object of class ") + Py_TYPE(o)->tp_name + " from a C function");
  return tr_.from_python(std::move(result), Ground::pure(given));
}

Variable* RealCalls::call_once(PyObject* fn, Variable* function, const Args& args) {
  auto constant = [&](Variable* v) { return is_python_constant(v); };
  if (!std::all_of(args.pos.begin(), args.pos.end(), constant) ||
      !std::all_of(args.kw.begin(), args.kw.end(), [&](const auto& a) { return constant(a.second); }))
    return nullptr;
  RealArgs real = convert(tr_, args, /*open=*/false);
  Ref result = Ref::steal(trace::call_untraced(fn, real.pos.data(), real.pos.size(), real.kw.get()));
  if (!result) tr_.raise_current();
  return tr_.global_object(tr_.keep(std::move(result)), Ground::pure(function, args));
}

Variable* RealCalls::specialised(Variable* v) {
  v = tr_.force(v);
  if (v->is(Kind::Sym)) return v->as<SymVariable>()->specialise(tr_);
  if (!v->is(Kind::Tuple) && !v->is(Kind::List)) return v;
  std::vector<Variable*> items;
  bool same = true;
  for (Variable* e : static_cast<SequenceVariable*>(v)->elements) {
    items.push_back(specialised(e));
    same = same && items.back() == tr_.force(e);
  }
  if (same) return v;
  return v->is(Kind::List) ? static_cast<Variable*>(tr_.list(std::move(items)))
                           : tr_.make<TupleVariable>(std::move(items), v->type());
}

Variable* RealCalls::polyfill(const char* name) {
  // Imported when the first one is wanted: most programs want none.
  Ref m = Ref::steal(PyImport_ImportModule("braze.polyfills"));
  Ref f = Ref::steal(m ? native::attr(Ground::fixed(), m.get(), name) : nullptr);
  if (!f) {
    PyErr_Clear();
    tr_.unsupported(std::string("no polyfill ") + name);
  }
  return tr_.global_object(f.get(), Ground::fixed());
}

}  // namespace braze::capture
