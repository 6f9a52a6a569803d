#include "capture/vars/array.h"

#include <functional>
#include <string_view>
#include <unordered_map>

#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/open_sizes.h"
#include "capture/eval/translator.h"
#include "capture/guards/array_memory.h"
#include "capture/vars/all.h"
#include "trace/size_hint.h"

namespace braze::capture {
namespace {

PyObject* size_hint(PyObject*, PyObject* size) { return trace::size_hint(size); }
PyMethodDef size_hint_method{"size_hint", size_hint, METH_O, nullptr};

PyObject* helper(const char* name) {
  static PyObject* module = [] {
    PyObject* m = PyImport_ImportModule("braze._arrays");
    Ref hint = Ref::steal(PyCFunction_New(&size_hint_method, nullptr));
    if (m) PyObject_SetAttrString(m, "size_hint", hint.get());
    return m;
  }();
  static std::unordered_map<std::string_view, PyObject*> found;
  auto [it, fresh] = found.try_emplace(name);
  if (fresh) it->second = module ? native::attr(Ground::fixed(), module, name) : nullptr;
  if (!it->second) throw InternalError(std::string("braze._arrays has no ") + name);
  return it->second;
}

// What a function of the helper gives for a name or object; nullptr: None.
PyObject* named(Translator& tr, const char* function, PyObject* argument) {
  Ref r = Ref::steal(PyObject_CallOneArg(helper(function), argument));
  if (!r) tr.raise_current();
  return r.get() == Py_None ? nullptr : tr.keep(std::move(r));
}
PyObject* named(Translator& tr, const char* function, const char* name) { return named(tr, function, tr.intern(name)); }

[[noreturn]] void not_here(Translator& tr, const std::string& what) {
  tr.unsupported(Reason::UnsupportedFeature, what);
}

// The message of the exception that is set, which goes.
std::string take_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Ref t = Ref::steal(type), v = Ref::steal(value), b = Ref::steal(traceback);
  Ref text = Ref::steal(v ? PyObject_Str(v.get()) : nullptr);
  const char* s = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return s ? s : "?";
}

// Arguments with tensors in place of arrays, and what each tensor is.
struct Lowered {
  Args args;
  std::vector<Variable*> given;  // by place: arrays and tensors
  std::vector<Ref> fakes;
  Ref kinds = Ref::steal(PyDict_New());
};

void note(Translator& tr, Lowered& l, Variable* v, TensorVariable* tensor, const char* kind) {
  PyObject* fake = tensor->value(tr);
  Ref id = Ref::steal(PyLong_FromVoidPtr(fake));
  if (native::item(Ground::made(), l.kinds.get(), id.get())) return;
  Ref what = Ref::steal(Py_BuildValue("(sn)", kind, static_cast<Py_ssize_t>(l.given.size())));
  PyDict_SetItem(l.kinds.get(), id.get(), what.get());
  l.given.push_back(v);
  l.fakes.push_back(Ref::borrow(fake));
}

Variable* lower(Translator& tr, Lowered& l, Variable* v) {
  v = tr.force(v);
  tr.check_stack();
  auto parts = [&](const std::vector<Variable*>& from) {
    std::vector<Variable*> out;
    for (Variable* e : from) out.push_back(lower(tr, l, e));
    return out;
  };
  switch (v->kind) {
    case Kind::Array: {
      auto* a = v->as<ArrayVariable>();
      note(tr, l, a, a->tensor, a->scalar ? "scalar" : a->readonly ? "readonly" : "array");
      return a->tensor;
    }
    case Kind::Tensor:
      if (v->type() != library().tensor) not_here(tr, "a function of NumPy on a tensor of a class of its own");
      note(tr, l, v, v->as<TensorVariable>(), "tensor");
      return v;
    case Kind::Tuple:
      if (v->type() != &PyTuple_Type && v->type() != library().size)
        not_here(tr, "a function of NumPy on " + v->describe());
      return tr.tuple(parts(v->as<TupleVariable>()->elements));
    case Kind::List:
      if (v->type() != &PyList_Type) not_here(tr, "a function of NumPy on " + v->describe());
      return tr.list(parts(v->as<ListVariable>()->elements));
    case Kind::Slice: {
      auto* s = v->as<SliceVariable>();
      return tr.make<SliceVariable>(lower(tr, l, s->parts[0]), lower(tr, l, s->parts[1]), lower(tr, l, s->parts[2]));
    }
    case Kind::Constant:
    case Kind::Real:
      if (PyObject* o = v->as_constant();
          PyType_Check(o) || std::string_view(Py_TYPE(o)->tp_name).starts_with("numpy.dtype")) {
        if (PyObject* name = named(tr, "dtype_name", o)) return tr.constant(name, Ground::pure(v));
        not_here(tr, "a function of NumPy on " + v->describe());
      }
      if (v->is(Kind::Constant)) return v;
      break;
    case Kind::Sym: return v;
    default: break;
  }
  not_here(tr, "a function of NumPy on " + v->describe());
}

Variable* lift(Translator& tr, const Lowered& l, PyObject* what, Variable* result) {
  result = tr.force(result);
  PyObject* head = PyTuple_GET_ITEM(what, 0);
  if (PyType_Check(head)) {
    PyObject* parts = PyTuple_GET_ITEM(what, 1);
    bool like = result->is(Kind::Tuple) || result->is(Kind::List);
    if (!like || static_cast<SequenceVariable*>(result)->elements.size() != static_cast<size_t>(PyList_GET_SIZE(parts)))
      not_here(tr, "torch._numpy gives other parts than NumPy");
    std::vector<Variable*> out;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(parts); ++i)
      out.push_back(lift(tr, l, PyList_GET_ITEM(parts, i),
                         static_cast<SequenceVariable*>(result)->elements[static_cast<size_t>(i)]));
    if (head == reinterpret_cast<PyObject*>(&PyList_Type)) return tr.list(std::move(out));
    return tr.make_tuple(reinterpret_cast<PyTypeObject*>(head), std::move(out));
  }
  std::string_view kind = PyUnicode_AsUTF8(head);
  if (kind == "none") return tr.none();
  if (kind == "same") return l.given[static_cast<size_t>(PyLong_AsSsize_t(PyTuple_GET_ITEM(what, 1)))];
  if (!result->is(Kind::Tensor)) not_here(tr, "torch._numpy gives no array where NumPy does");
  auto* tensor = result->as<TensorVariable>();
  Ref fakes = Ref::steal(PyList_New(0));
  for (const Ref& f : l.fakes) PyList_Append(fakes.get(), f.get());
  Ref fits = Ref::steal(PyObject_CallFunctionObjArgs(helper("fits"), tensor->value(tr), what, fakes.get(), nullptr));
  if (!fits) not_here(tr, take_error());
  long how = PyLong_AsLong(fits.get());
  if (how == 0) not_here(tr, "torch._numpy gives an array of another type, shape or memory than NumPy");
  if (how != 1) {
    static PyObject* clone = native::type_attr(Ground::fixed(), library().tensor, PyUnicode_InternFromString("clone"));
    static PyObject* rows =
        native::attr(Ground::fixed(), Ref::steal(PyImport_ImportModule("torch")).get(), "contiguous_format");
    Args copy{{tensor}, {}};
    if (how == 3) copy.kw.emplace_back(tr.intern("memory_format"), tr.constant(rows, Ground::pure(tensor)));
    tensor = tr.force(tr.real.call_torch(clone, copy))->as<TensorVariable>();
  }
  if (kind == "tensor") return tensor;
  bool scalar = kind == "scalar";
  PyTypeObject* cls = array_type();
  if (scalar) {
    Ref dtype = Ref::steal(PyObject_CallOneArg(helper("numpy_dtype"), PyTuple_GET_ITEM(what, 1)));
    Ref type = Ref::steal(dtype ? native::attr(Ground::made(), dtype.get(), "type") : nullptr);
    if (!type) tr.raise_current();
    cls = reinterpret_cast<PyTypeObject*>(tr.keep(std::move(type)));
  }
  return tr.make<ArrayVariable>(tensor, cls, scalar, kind == "readonly");
}

// Numbers from numbers are known while capturing; nullptr: an array, which is another one in each call.
Variable* number_from_numbers(Translator& tr, PyObject* callable, const Args& args) {
  std::vector<Ref> owned;
  std::vector<PyObject*> pos;
  Ref kw = Ref::steal(PyDict_New());
  for (Variable* v : args.pos) pos.push_back(owned.emplace_back(tr.real.to_python(v)).get());
  for (auto& [name, v] : args.kw) PyDict_SetItem(kw.get(), name, tr.real.to_python(v).get());
  Ref made = Ref::steal(PyObject_VectorcallDict(callable, pos.data(), pos.size(), kw.get()));
  if (!made) not_here(tr, take_error());
  return is_constant_type(Py_TYPE(made.get())) ? tr.from_python(std::move(made), Ground::pure(args)) : nullptr;
}

// `of_sizes`: the function itself when it is called on open integers: a scalar that it gives is a number of this call.
Variable* apply(Translator& tr, PyObject* operation, const Args& args, PyObject* of_sizes = nullptr) {
  Lowered l;
  for (Variable* v : args.pos) l.args.pos.push_back(lower(tr, l, v));
  for (auto& [name, v] : args.kw) l.args.kw.emplace_back(name, lower(tr, l, v));
  Ref pos = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(l.args.size()))), kw = Ref::steal(PyDict_New());
  {
    OpenSizes open(true);
    for (size_t i = 0; i < l.args.size(); ++i)
      PyTuple_SET_ITEM(pos.get(), static_cast<Py_ssize_t>(i), tr.real.to_python(l.args[i]).release());
    for (auto& [name, v] : l.args.kw) PyDict_SetItem(kw.get(), name, tr.real.to_python(v).get());
  }
  Ref what;
  {
    trace::WithoutTorchFunctions no_operation_of_the_programs(2);
    tr.tracer().leave();  // what stands for the arguments is real
    what = Ref::steal(
        PyObject_CallFunctionObjArgs(helper("expect"), operation, pos.get(), kw.get(), l.kinds.get(), nullptr));
    tr.tracer().enter();
  }
  if (!what) not_here(tr, take_error());
  PyObject* head = PyTuple_GET_ITEM(what.get(), 0);
  if (of_sizes && PyUnicode_Check(head) && PyUnicode_CompareWithASCIIString(head, "scalar") == 0)
    if (Variable* v = number_from_numbers(tr, of_sizes, args)) return v;
  // torch._numpy goes by the tensors' method of this name, whatever it is by then.
  Ref name = Ref::steal(native::attr(Ground::fixed(), operation, "of_method"));
  if (!name) tr.raise_current();
  tr.attributes.tensor_operator(PyUnicode_AsUTF8(name.get()), {});
  Variable* result;
  try {
    result = tr.real.call_torch(operation, l.args);
  } catch (const PyRaise& e) {
    not_here(tr, "torch._numpy raises " + std::string(e.exception->type()->tp_name) + " where NumPy does not");
  }
  return lift(tr, l, what.get(), result);
}

Ref shape_of(Translator& tr, ArrayVariable* a) {
  Ref shape = Ref::steal(native::of_tensor(a->tensor->value(tr), "shape"));
  if (!shape) tr.raise_current();
  return shape;
}

Variable* query(Translator& tr, TensorVariable* t, const char* method) {
  trace::WithoutTorchFunctions no_operation_of_the_programs(2);
  return tr.real.query_torch(native::type_attr(Ground::fixed(), library().tensor, tr.intern(method)), Args{{t}, {}});
}
Variable* query(Translator& tr, ArrayVariable* a, const char* method) { return query(tr, a->tensor, method); }

}  // namespace

ArrayVariable* wrap_array(Translator& tr, PyObject* array, SourceId source) {
  tr.tracer().leave();  // a tensor of its own, not one of the recorder's
  PyObject* tensor = array_tensor(array);
  tr.tracer().enter();
  if (!tensor) return nullptr;
  tr.keep(Ref::borrow(tensor));
  Variable* content = tr.force(tr.wrap(tensor, tr.sources().derived(SourceKind::ArrayTensor, source)));
  auto* a = tr.make<ArrayVariable>(content->as<TensorVariable>(), array_type(), false);
  a->source = source;
  a->born = 0;
  return a;
}

bool has_array(Translator& tr, const Args& args) {
  std::vector<Variable*> todo = args.pos;
  for (auto& [name, v] : args.kw) todo.push_back(v);
  for (size_t i = 0; i < todo.size(); ++i) {
    Variable* v = todo[i];
    if (v->is(Kind::Lazy) && !v->as<LazyVariable>()->forced) {
      PyTypeObject* t = v->type();
      if (t != array_type() && t != &PyTuple_Type && t != &PyList_Type) continue;
    }
    v = tr.force(v);
    if (v->is(Kind::Array)) return true;
    if (v->is(Kind::Tuple) || v->is(Kind::List)) {
      const auto& e = static_cast<SequenceVariable*>(v)->elements;
      if (todo.size() + e.size() < 10000) todo.insert(todo.end(), e.begin(), e.end());
    }
  }
  return false;
}

bool of_numpy(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  auto starts = [](PyObject* s) {
    const char* c = s && PyUnicode_Check(s) ? PyUnicode_AsUTF8(s) : nullptr;
    return c && (std::string_view(c) == "numpy" || std::string_view(c).starts_with("numpy."));
  };
  if (PyFunction_Check(o)) {
    static PyObject* name = PyUnicode_InternFromString("__name__");
    return starts(native::item(Ground::fixed(), PyFunction_GET_GLOBALS(o), name));
  }
  if (PyCFunction_Check(o)) return starts(reinterpret_cast<PyCFunctionObject*>(o)->m_module);
  return !PyType_Check(o) && std::string_view(t->tp_name).starts_with("numpy.") && PyCallable_Check(o);
}

Variable* call_numpy(Translator& tr, PyObject* callable, const Args& args) {
  PyObject* operation = named(tr, "function", callable);
  if (!operation) return nullptr;
  bool numbers = true, open = false;
  std::function<void(Variable*)> look = [&](Variable* v) {
    v = tr.force(v);
    open = open || v->is(Kind::Sym);
    numbers = numbers && tr.real.is_python_constant(v);
    if (v->is(Kind::Tuple) || v->is(Kind::List))
      for (Variable* e : static_cast<SequenceVariable*>(v)->elements) look(e);
  };
  for (Variable* v : args.pos) look(v);
  for (auto& [name, v] : args.kw) look(v);
  if (numbers && std::string_view(Py_TYPE(callable)->tp_name) == "numpy.ufunc") return nullptr;
  if (numbers && !open)
    if (Variable* v = number_from_numbers(tr, callable, args)) return v;
  return apply(tr, operation, args, numbers && open ? callable : nullptr);
}

Variable* array_operator(Translator& tr, const char* name, std::vector<Variable*> operands) {
  return apply(tr, named(tr, "operation", name), Args{std::move(operands), {}});
}

// A tensor on the same memory, which is another object.
static TensorVariable* alias(Translator& tr, TensorVariable* t) {
  static PyObject* fn = [] {
    Ref m = Ref::steal(PyImport_ImportModule("torch"));
    Ref ops = Ref::steal(native::attr(Ground::fixed(), m.get(), "ops")),
        aten = Ref::steal(native::attr(Ground::fixed(), ops.get(), "aten"));
    Ref packet = Ref::steal(native::attr(Ground::fixed(), aten.get(), "alias"));
    return native::attr(Ground::fixed(), packet.get(), "default");
  }();
  return tr.force(tr.real.call_torch(fn, Args{{t}, {}}))->as<TensorVariable>();
}

Variable* array_of(Translator& tr, TensorVariable* t, bool force) {
  PyObject* fake = t->value(tr);
  auto is = [&](const char* name) {
    Ref v = Ref::steal(native::of_tensor(fake, name));
    if (!v) PyErr_Clear();
    return v.get() == Py_True;
  };
  Ref dtype = Ref::steal(native::of_tensor(fake, "dtype"));
  if (t->type() != library().tensor && t->type() != library().parameter) return nullptr;
  if (!is("is_cpu") || !named(tr, "numpy_dtype", dtype.get())) return nullptr;
  // PyTorch refuses what is conjugated or negated lazily.
  if (!force && (tr.truth(query(tr, t, "is_conj")) || tr.truth(query(tr, t, "is_neg")))) return nullptr;
  if (is("requires_grad")) {
    if (!force) return nullptr;
    static PyObject* detach =
        native::type_attr(Ground::fixed(), library().tensor, PyUnicode_InternFromString("detach"));
    t = tr.force(tr.real.call_torch(detach, Args{{t}, {}}))->as<TensorVariable>();
  } else {
    t = alias(tr, t);
  }
  if (!array_type()) Ref::steal(PyImport_ImportModule("numpy"));
  return tr.make<ArrayVariable>(t, array_type(), false);
}

TensorVariable* tensor_of(Translator& tr, ArrayVariable* a) { return alias(tr, a->tensor); }

Variable* ArrayVariable::getattr(Translator& tr, PyObject* name) {
  std::string_view n = PyUnicode_AsUTF8(name);
  if (n == "__class__") return tr.global_object(reinterpret_cast<PyObject*>(cls), Ground::pure(this));
  auto numbers = [&](PyObject* sizes) {
    std::vector<Variable*> out;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(sizes); ++i)
      out.push_back(tr.from_python(Ref::borrow(PyTuple_GET_ITEM(sizes, i)), Ground::pure(this)));
    return out;
  };
  if (n == "shape") return tr.tuple(numbers(shape_of(tr, this).get()));
  if (n == "ndim") return tr.integer(PyTuple_GET_SIZE(shape_of(tr, this).get()), Ground::pure(this));
  if (n == "size") return query(tr, this, "numel");
  if (n == "itemsize") return query(tr, this, "element_size");
  if (n == "nbytes")
    return tr.binary_op(5 /* NB_MULTIPLY */, query(tr, this, "numel"), query(tr, this, "element_size"));
  if (n == "strides" && !scalar) {
    std::vector<Variable*> out;
    for (Variable* s : tr.unpack(query(tr, this, "stride")))
      out.push_back(tr.binary_op(5, s, query(tr, this, "element_size")));
    return tr.tuple(std::move(out));
  }
  if (n == "dtype") {
    Ref dtype = Ref::steal(native::of_tensor(tensor->value(tr), "dtype"));
    return tr.constant(named(tr, "numpy_dtype", dtype.get()), Ground::pure(this));
  }
  if (n == "T" || n == "real" || n == "imag") return apply(tr, named(tr, "attribute", name), Args{{this}, {}});
  PyObject* descr = native::type_attr(Ground::fixed(), cls, name);
  if (!descr) return nullptr;
  if (Py_TYPE(descr) == &PyMethodDescr_Type || Py_TYPE(descr) == &PyWrapperDescr_Type)
    return tr.make<BuiltinMethodVariable>(this, descr, cls, name);
  not_here(tr, "attribute '" + std::string(n) + "' of " + describe());
}

Variable* ArrayVariable::call_method(Translator& tr, const char* name, Args& args) {
  std::string_view n = name;
  bool bare = args.size() + args.kw.size() == 0;
  if (bare && (n == "tolist" || n == "item" || n == "__float__" || n == "__int__" || n == "__index__"))
    return tensor->call_method(tr, name, args);
  if (bare && n == "__len__") return tr.integer(len(tr), Ground::pure(this, args));
  if (bare && n == "__iter__") return iter(tr);
  if (bare && n == "__bool__") return tr.boolean(truth(tr), Ground::pure(this, args));
  if (n == "__getitem__" && args.size() == 1) return getitem(tr, args[0]);
  if (n == "__setitem__" && args.size() == 2) return setitem(tr, args[0], args[1]), tr.none();
  PyObject* operation = named(tr, "method", name);
  if (!operation) return nullptr;
  Args all{{this}, args.kw};
  all.pos.insert(all.pos.end(), args.pos.begin(), args.pos.end());
  return apply(tr, operation, all);
}

Variable* ArrayVariable::getitem(Translator& tr, Variable* key) { return array_operator(tr, "getitem", {this, key}); }
void ArrayVariable::setitem(Translator& tr, Variable* key, Variable* value) {
  array_operator(tr, "setitem", {this, key, value});
}

int64_t ArrayVariable::len(Translator& tr) {
  if (scalar) tr.raise(PyExc_TypeError, std::string("object of type '") + cls->tp_name + "' has no len()");
  if (PyTuple_GET_SIZE(shape_of(tr, this).get()) == 0) tr.raise(PyExc_TypeError, "len() of unsized object");
  return tensor->len(tr);
}

bool ArrayVariable::truth(Translator& tr) {
  PyObject* n = constant_of(tr.real.specialised(query(tr, this, "numel")));
  if (!n || PyLong_AsLong(n) != 1) not_here(tr, "the truth value of an array");
  return tensor->truth(tr);
}

std::vector<Variable*> ArrayVariable::items(Translator& tr) {
  if (PyTuple_GET_SIZE(shape_of(tr, this).get()) == 0) tr.raise(PyExc_TypeError, "iteration over a 0-d array");
  const int64_t n = len(tr);
  check_loop(tr, n);
  std::vector<Variable*> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(getitem(tr, tr.integer(i, Ground::pure(this))));
  return out;
}

Variable* ArrayVariable::iter(Translator& tr) { return tr.make<SequenceIterator>(this, items(tr)); }

Reg ArrayVariable::build(Codegen& cg) {
  return cg.recipe.make(StepKind::Call, {cg.constant(helper(scalar     ? "to_scalar"
                                                            : readonly ? "to_readonly"
                                                                       : "to_array")),
                                         cg.reg(tensor)});
}

}  // namespace braze::capture
