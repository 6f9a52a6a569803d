#include "capture/vars/tensor.h"

#include <unordered_set>

#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/hook.h"
#include "capture/vars/score_index.h"
#include "capture/vars/tensor_grad.h"
#include "capture/vars/tensor_number.h"
#include "trace/pytorch/names.h"

namespace braze::capture {
namespace {

PyObject* builtin(const char* name) { return native::builtin(name); }

// Of an attribute of torch.Tensor: whether the program put it there, so that it is its own code or data and no
// operation.
bool put_by_program(PyObject* attribute) {
  PyTypeObject* t = Py_TYPE(attribute);
  if (t == &PyFunction_Type) return !of_library(attribute);
  if (PyType_IsSubtype(t, &PyProperty_Type)) {
    Ref get = Ref::steal(native::attr(Ground::fixed(), attribute, "fget"));
    return get && PyFunction_Check(get.get()) && !of_library(get.get());
  }
  return !t->tp_descr_get || (t->tp_flags & Py_TPFLAGS_HEAPTYPE);
}

}  // namespace

PyTypeObject* TensorVariable::type() const {
  if (cls) return cls;
  return real ? Py_TYPE(real.get()) : Py_TYPE(fake.get());
}

PyObject* TensorVariable::value(Translator& tr) {
  if (!fake) {
    auto kind = graph::InputKind::Argument;
    // A parameter that is an argument is the same one in every call, as a rule.
    bool parameter = PyObject_TypeCheck(real.get(), library().parameter) && symbolic.empty();
    if (parameter)
      kind = graph::InputKind::Parameter;
    else if (tr.is_fixed(source, real.get()))
      kind = graph::InputKind::Buffer;
    PyObject* f = tr.tracer().lift(real.get(), kind, tr.sources().print(source), symbolic);
    if (!f) tr.raise_current();
    fake = Ref::steal(f);
    PyTypeObject* t = Py_TYPE(real.get());
    if (t != library().tensor && t != library().parameter) tr.torch_functions.set_tensor_class(this, f, t);
    tr.lifted(this);
    tr.stands_for(f, this);
  }
  return fake.get();
}

Variable* tensor_attribute(Translator& tr, TensorVariable* t, PyObject* name) {
  static PyObject* getattr = builtin("getattr");
  return tr.real.call_torch(getattr, Args{{t, tr.constant(name, Ground::pure(t))}, {}});
}

Variable* TensorVariable::getattr(Translator& tr, PyObject* name) {
  static const std::unordered_set<std::string> tensors{"T", "mT", "H", "mH", "data", "real", "imag"};
  std::string n = PyUnicode_AsUTF8(name);
  if (n == "__class__") return tr.global_object(reinterpret_cast<PyObject*>(type()), Ground::pure(this));
  if (n == "grad" || n == pytorch::text(pytorch::Attribute::grad)) return get_gradient(tr, this);
  if (n == "grad_fn" && real) {
    Ref leaf = Ref::steal(native::of_tensor(value(tr), tr.intern("is_leaf")));
    if (leaf.get() == Py_True) return tr.none();
  }
  if (n == "grad_fn" || n == "__dict__" || n == pytorch::text(pytorch::Attribute::backward_hooks) ||
      n == pytorch::text(pytorch::Attribute::post_accumulate_grad_hooks)) {
    Ref made = real ? Ref() : Ref::steal(native::attr(Ground::made(), value(tr), name));
    if (made.get() == Py_None) return tr.none();
    if (made && n == "grad_fn") return tr.host.from_host(std::move(made));
    PyErr_Clear();
    tr.unsupported("attribute '" + n + "' of a tensor");
  }
  if (n == pytorch::text(pytorch::Attribute::base) && real) {
    Ref base = Ref::steal(native::attr(Ground::guarded(source), real.get(), name));
    if (!base) tr.raise_current();
    return tr.wrap(base.get(), tr.sources().add(SourceKind::TensorAttr, source, 0, name));
  }
  // What happened to a tensor is not known of a fake, and no part of a tensor's guard.
  bool history = n == pytorch::text(pytorch::Attribute::version) || n == pytorch::text(pytorch::Attribute::is_view) ||
                 (real && (n == "output_nr" || n == "retains_grad"));
  if (history) tr.unsupported("attribute '" + n + "' of a tensor");
  SourceId where;
  PyObject* descr = tr.attributes.lookup_on_type(type(), name, &where);
  if (!descr) {
    // Attributes that the user put on the tensor.
    if (real) {
      for (auto& [k, v] : attributes)
        if (PyUnicode_Compare(k, name) == 0) return v;
      Ref dict = Ref::steal(native::attr(Ground::guarded(source), real.get(), "__dict__"));
      if (!dict) PyErr_Clear();
      // The code may have come by the dict on another way, and written to it.
      if (dict && tr.standing_for(dict.get()))
        return dict_behind(tr, tr.wrap(dict.get(), tr.sources().instance_dict(source)))->get(tr, name);
      SourceId at = tr.sources().instance_attr(source, name);
      if (PyObject* v = dict ? native::item(Ground::guarded(source), dict.get(), name) : nullptr) {
        tr.guards().exists(at, tr.line());
        return tr.wrap(v, at);
      }
      if (dict) tr.guards().absent(at, tr.line());
    } else {
      for (auto& [k, v] : attributes)
        if (PyUnicode_Compare(k, name) == 0) return v;
    }
    return nullptr;
  }
  PyTypeObject* d = Py_TYPE(descr);
  // An attribute of the tensor's own comes before a method of its class.
  auto own_attribute = [&]() -> Variable* {
    if (!real || !source.valid() || d->tp_descr_set) return nullptr;
    SourceId at = tr.sources().dict_item(tr.sources().derived(SourceKind::MadeDict, source), name);
    PyObject** dict = _PyObject_GetDictPtr(real.get());
    PyObject* v = dict && *dict ? native::item(Ground::guarded(at), *dict, name) : nullptr;
    if (!v) return tr.guards().absent(at, tr.line()), nullptr;
    tr.guards().exists(at, tr.line());
    return tr.wrap(v, at);
  };
  bool subclass = type() != library().tensor && type() != library().parameter;
  if (subclass && descr != native::type_attr(Ground::fixed(), library().tensor, name) &&
      descr != native::type_attr(Ground::fixed(), library().parameter, name)) {
    if (!d->tp_descr_set)
      for (auto& [k, v] : attributes)
        if (PyUnicode_Compare(k, name) == 0) return v;
    if (Variable* v = own_attribute()) return v;
    return tr.attributes.bind_descriptor(descr, where, this, type(), name);
  }
  if (Variable* v = own_attribute()) return v;
  if (put_by_program(descr)) return tr.attributes.bind_descriptor(descr, where, this, type(), name);
  if (where.valid()) tr.guard_identity(where, descr);
  if (d == &PyMethodDescr_Type || d == &PyWrapperDescr_Type || d == &PyFunction_Type)
    return tr.make<BuiltinMethodVariable>(this, descr, type(), name);
  if (tensors.count(n) || tr.torch_functions.overrides(Args{{this}, {}})) return tensor_attribute(tr, this, name);
  Ref v = Ref::steal(native::attr(Ground::made(), value(tr), name));
  if (!v) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) tr.raise_current();
    PyErr_Clear();
    return nullptr;
  }
  if (tr.tracer().is_fake(v.get())) return tensor_attribute(tr, this, name);
  return tr.from_python(std::move(v), Ground::pure(this));
}

void TensorVariable::setattr(Translator& tr, PyObject* name, Variable* v) {
  std::string n = PyUnicode_AsUTF8(name);
  if (n == "grad" || n == pytorch::text(pytorch::Attribute::grad)) return set_gradient(tr, this, v);
  if (n == "requires_grad" && v && !real) {
    static PyObject* fn =
        native::type_attr(Ground::fixed(), library().tensor, PyUnicode_InternFromString("requires_grad_"));
    tr.real.call_torch(fn, Args{{this, v}, {}});
    return;
  }
  if (n == "data" && v && tr.force(v)->is(Kind::Tensor)) return set_data(tr, tr.force(v)->as<TensorVariable>());
  if (n == "data" || n == "grad" || n == "requires_grad" || !v || tr.attributes.lookup_on_type(type(), name, nullptr))
    tr.unsupported(Reason::UnsupportedMutation, "attribute '" + n + "' of a tensor is set");
  tr.mutate();
  tr.effects.modified(this);
  tr.keep(Ref::borrow(name));
  for (auto& [k, old] : attributes)
    if (PyUnicode_Compare(k, name) == 0) {
      old = v;
      return;
    }
  attributes.emplace_back(name, v);
}

// tensor.data = v: from now on it is v's content, under its own identity.
void TensorVariable::set_data(Translator& tr, TensorVariable* v) {
  auto plain = [&](TensorVariable* t) {
    Ref grad = Ref::steal(native::of_tensor(t->value(tr), "requires_grad"));
    return grad.get() == Py_False;
  };
  auto same = [&](const char* what) {
    Ref a = Ref::steal(native::of_tensor(value(tr), what)), b = Ref::steal(native::of_tensor(v->value(tr), what));
    return PyObject_RichCompareBool(a.get(), b.get(), Py_EQ) == 1;
  };
  bool plain_class = type() == library().tensor || (real && type() == library().parameter);
  if (!plain_class || v->type() != library().tensor || !plain(this) || !plain(v) || !same("dtype") || !same("device") ||
      tr.host.in_callback())  // vmap refuses it
    tr.unsupported(Reason::UnsupportedMutation, "attribute 'data' of a tensor is set");
  tr.effects.no_effect("sets the data of a tensor");
  tr.mutate();
  static PyObject* detach = native::type_attr(Ground::fixed(), library().tensor, PyUnicode_InternFromString("detach"));
  auto* content = tr.force(tr.real.call_torch(detach, Args{{v}, {}}))->as<TensorVariable>();
  // The gradient is the tensor's, whatever data it has.
  Ref gradient = Ref::steal(native::of_tensor(value(tr), "grad"));
  if (!gradient) tr.raise_current();
  if (gradient.get() != Py_None && PyObject_SetAttrString(content->fake.get(), "grad", gradient.get()) < 0) {
    PyErr_Clear();
    tr.unsupported(Reason::UnsupportedMutation, "the data of a tensor are set, and its gradient has other sizes");
  }
  fake = content->fake;
  if (!real) return;  // one that was made here is what it holds in the end
  tr.effects.modified(this);
  data = content;
}

// The methods that turn a tensor into a view of itself, on one that existed before: it gets the content of the view.
bool TensorVariable::changes_geometry(Translator& tr, std::string_view method, Args& args) {
  static const std::unordered_map<std::string_view, const char*> views{{"t_", "t"},
                                                                       {"transpose_", "transpose"},
                                                                       {"swapaxes_", "swapaxes"},
                                                                       {"swapdims_", "swapdims"},
                                                                       {"squeeze_", "squeeze"},
                                                                       {"unsqueeze_", "unsqueeze"}};
  auto it = views.find(method);
  if (it == views.end() || tr.torch_functions.overrides(Args{{this}, {}})) return false;
  Ref grad = Ref::steal(native::of_tensor(value(tr), "requires_grad"));
  if (grad.get() != Py_False) return false;
  Args all{{this}, args.kw};
  all.pos.insert(all.pos.end(), args.pos.begin(), args.pos.end());
  Variable* view =
      tr.force(tr.real.call_torch(native::type_attr(Ground::fixed(), library().tensor, tr.intern(it->second)), all));
  set_data(tr, view->as<TensorVariable>());
  ++writes;
  return true;
}

int64_t TensorVariable::times_written() const {
  if (!fake) return 0;
  Ref version = Ref::steal(native::of_tensor(fake.get(), pytorch::text(pytorch::Attribute::version)));
  PyErr_Clear();  // an inference tensor has none
  return version ? PyLong_AsLongLong(version.get()) : 0;
}

void TensorVariable::emit_changes(Codegen& cg, Reg self) {
  static PyObject* name = PyUnicode_InternFromString("data");
  // Its data are set to those of another, whose history it would not get.
  if (data && Ref::steal(native::of_tensor(fake.get(), "requires_grad")).get() == Py_True)
    throw Unsupported(
        Reason::UnsupportedMutation,
        "an argument that was given other data, or another geometry, is written to and then requires a gradient");
  if (data) cg.recipe.effect(StepKind::SetAttr, {self, cg.reg(data)}, name);
  if (writes) cg.recipe.written.emplace_back(source, writes);
  for (auto& [k, v] : attributes) cg.recipe.effect(StepKind::SetAttr, {self, cg.reg(v)}, k);
}

Variable* TensorVariable::call_method(Translator& tr, const char* name, Args& args) {
  std::string_view n = name;
  if (n == "__len__" && args.size() == 0) return length(tr);
  if (n == "__iter__" && args.size() == 0) return iter(tr);
  if (n == "__contains__" && args.size() == 1) return tr.boolean(contains(tr, args[0]), Ground::pure(this, args));
  if (n == "__bool__" && args.size() == 0) return tr.boolean(truth(tr), Ground::pure(this, args));
  if (n == "__hash__" && args.size() == 0) tr.unsupported("the hash of a tensor");
  if (args.size() + args.kw.size() == 0) {
    Variable* number = n == "tolist"                        ? list_of_numbers(tr, this)
                       : n == "item"                        ? number_of(tr, this, nullptr)
                       : n == "__float__"                   ? number_of(tr, this, &PyFloat_Type)
                       : n == "__int__" || n == "__index__" ? number_of(tr, this, &PyLong_Type)
                                                            : nullptr;
    if (number) return number;
  }
  if (n == "numpy" && args.size() == 0 && args.kw.size() <= 1) {
    Variable* force = args.kw.empty() ? nullptr : args.take_kw("force");
    if (Variable* v = args.kw.empty() ? array_of(tr, this, force && tr.truth(force)) : nullptr) return v;
  }
  if (n == "item" || n == "tolist" || n == "numpy" || n == "__array__" || n == "__float__" || n == "__int__" ||
      n == "__index__" || n == "__complex__")
    tr.unsupported(Reason::ScalarFromTensor, std::string("Tensor.") + name + "()");
  if (n == "requires_grad_" && real && args.kw.empty() && args.size() <= 1) {
    Ref now = Ref::steal(native::of_tensor(value(tr), "requires_grad"));
    if ((now.get() == Py_True) == (args.size() == 0 || tr.truth(args[0]))) return this;
  }
  // What later uses of a result of the compiled code add to its gradient is known, what its uses inside add is not.
  if (real && (n == "register_hook" || n == "register_post_accumulate_grad_hook") && args.size() == 1 &&
      args.kw.empty())
    if (Variable* handle = hook_on_leaf(tr, this, name, args[0])) return handle;
  if (n == "register_post_accumulate_grad_hook" || n == "retain_grad" ||
      (real && (n == "requires_grad_" || n == "register_hook"))) {
    // An argument that was written to holds a result.
    bool result = !real || times_written() > 0;
    tr.unsupported(result ? Reason::IntermediateHistory : Reason::UnsupportedFeature,
                   std::string("Tensor.") + name + "()");
  }
  if (n == "is_inference" && !real) return tr.boolean(tr.is_inference(this), Ground::pure(this, args));
  if (n == "register_hook") {
    tr.effects.no_effect("registers a hook");
    Ref leaf = Ref::steal(native::of_tensor(value(tr), "is_leaf"));
    if (leaf.get() == Py_True)
      tr.unsupported("a hook on a leaf");  // the backward of the graph computes no gradient of it
    // Such a result is made anew as a view of the real one, in whose history no hook would be.
    if (tr.on_plain_input(fake.get())) tr.unsupported(Reason::IntermediateHistory, "a hook on a view of an argument");
  }
  if (real && changes_geometry(tr, n, args)) return this;
  PyObject* descr = tr.attributes.lookup_on_type(type(), tr.intern(name), nullptr);
  if (!descr) return nullptr;
  bool sets = n == "__setattr__" && args.size() == 2,
       of_attribute = sets || ((n == "__delattr__" || n == "__getattribute__") && args.size() == 1);
  if (PyObject* attribute = of_attribute && args.kw.empty() ? constant_of(tr.force(args[0])) : nullptr;
      attribute && PyUnicode_Check(attribute)) {
    if (n == "__getattribute__") return tr.getattr(this, attribute);
    return setattr(tr, attribute, sets ? args[1] : nullptr), tr.none();
  }
  if (descr == native::type_attr(Ground::fixed(), &PyBaseObject_Type, name))
    tr.unsupported(std::string("object.") + name + " of a tensor");
  static const std::unordered_set<std::string_view> queries{"size",          "dim",
                                                            "stride",        "numel",
                                                            "nelement",      "element_size",
                                                            "is_contiguous", "is_floating_point",
                                                            "is_complex",    "is_signed",
                                                            "get_device",    "ndimension",
                                                            "is_inference",  "storage_offset",
                                                            "type",          "data_ptr",
                                                            "is_set_to",     "has_names",
                                                            "is_conj",       "is_neg"};
  if (queries.count(n) && !(n == "type" && args.size() + args.kw.size() > 0)) {
    // No operation on data: not part of the graph.
    if (n == "storage_offset")
      if (Ref offset = Ref::steal(tr.tracer().storage_offset(value(tr))))
        return tr.from_python(std::move(offset), Ground::pure(this, args));
    if (n == "data_ptr" || n == "storage_offset" || n == "is_set_to")
      tr.unsupported(std::string("Tensor.") + name + "()");
    Args all{{this}, args.kw};
    all.pos.insert(all.pos.end(), args.pos.begin(), args.pos.end());
    return tr.real.query_torch(descr, all);
  }
  if (n == "as_strided" && args.size() + args.kw.size() > 2 && tr.tracer().forgets_offset(value(tr)))
    tr.unsupported("as_strided of an argument that was written to");
  Args all{{this}, args.kw};
  all.pos.insert(all.pos.end(), args.pos.begin(), args.pos.end());
  if (n == "register_hook") {
    if (!tr.host.hook) tr.host.hook = tr.ordinal();
    return tr.host.call(descr, all);
  }
  return tr.real.call_torch(descr, all);
}

Variable* TensorVariable::getitem(Translator& tr, Variable* key) {
  static PyObject* fn = native::type_attr(Ground::fixed(), library().tensor, PyUnicode_InternFromString("__getitem__"));
  tr.attributes.tensor_operator("__getitem__", {this});
  if (Variable* v = element_of_scores(tr, this, key)) return v;
  if (Variable* v = part_by_numbers(tr, this, key)) return v;
  return tr.real.call_torch(fn, Args{{this, key}, {}});
}

static bool is_mask(Translator& tr, Variable* key) {
  key = tr.force(key);
  static PyObject* boolean = native::attr(Ground::fixed(), library().torch, "bool");
  Ref dtype =
      Ref::steal(key->is(Kind::Tensor) ? native::of_tensor(key->as<TensorVariable>()->value(tr), "dtype") : nullptr);
  return dtype.get() == boolean;
}

static bool wants_gradient(Translator& tr, Variable* v) {
  v = tr.force(v);
  Ref wants = Ref::steal(v->is(Kind::Tensor) ? native::of_tensor(v->as<TensorVariable>()->value(tr), "requires_grad")
                                             : nullptr);
  return wants.get() == Py_True;
}

void TensorVariable::setitem(Translator& tr, Variable* key, Variable* v) {
  static PyObject* fn = native::type_attr(Ground::fixed(), library().tensor, PyUnicode_InternFromString("__setitem__"));
  tr.attributes.tensor_operator("__setitem__", {this});
  if (Variable* part = part_by_numbers(tr, this, key)) {
    static PyObject *copy = native::type_attr(Ground::fixed(), library().tensor, PyUnicode_InternFromString("copy_")),
                    *fill = native::type_attr(Ground::fixed(), library().tensor, PyUnicode_InternFromString("fill_"));
    tr.real.call_torch(tr.force(v)->is(Kind::Tensor) ? copy : fill, Args{{part, v}, {}});
    return;
  }
  if (!tr.torch_functions.any() && is_mask(tr, key) && wants_gradient(tr, v)) {
    tr.call(tr.real.polyfill("set_masked"), {this, key, v});
    return;
  }
  tr.real.call_torch(fn, Args{{this, key, v}, {}});
}

bool TensorVariable::contains(Translator& tr, Variable*) {
  tr.unsupported(Reason::DataDependentBranch, "'in' on a tensor");
}

Variable* TensorVariable::length(Translator& tr) {
  tr.attributes.tensor_operator("__len__", {this});
  Ref shape = Ref::steal(native::of_tensor(value(tr), "shape"));
  if (!shape) tr.raise_current();
  if (PyTuple_GET_SIZE(shape.get()) == 0) tr.raise(PyExc_TypeError, "len() of a 0-d tensor");
  return tr.from_python(Ref::borrow(PyTuple_GET_ITEM(shape.get(), 0)), Ground::pure(this));
}

int64_t TensorVariable::len(Translator& tr) {
  tr.attributes.tensor_operator("__len__", {this});
  Ref shape = Ref::steal(native::of_tensor(value(tr), "shape"));
  if (!shape) tr.raise_current();
  if (PyTuple_GET_SIZE(shape.get()) == 0) tr.raise(PyExc_TypeError, "len() of a 0-d tensor");
  // A symbolic size is specialised: Python's len is an int.
  int64_t n = PyLong_AsLongLong(PyTuple_GET_ITEM(shape.get(), 0));
  if (n == -1 && PyErr_Occurred()) tr.raise_current();
  return n;
}

std::vector<Variable*> TensorVariable::items(Translator& tr) {
  tr.attributes.tensor_operator("__iter__", {this});
  static PyObject* unbind = native::attr(Ground::fixed(), library().torch, "unbind");
  Ref shape = Ref::steal(native::of_tensor(value(tr), "shape"));
  if (!shape) tr.raise_current();
  if (PyTuple_GET_SIZE(shape.get()) == 0) tr.raise(PyExc_TypeError, "iteration over a 0-d tensor");
  if (PyObject* n = PyTuple_GET_ITEM(shape.get(), 0); PyLong_Check(n)) check_loop(tr, PyLong_AsLongLong(n));
  return tr.real.call_torch(unbind, Args{{this}, {}})->items(tr);
}

Variable* TensorVariable::iter(Translator& tr) { return tr.make<SequenceIterator>(this, items(tr)); }

bool TensorVariable::truth(Translator& tr) {
  tr.attributes.tensor_operator("__bool__", {this});
  if (Ref known = Ref::steal(tr.tracer().known_number(value(tr)))) return PyObject_IsTrue(known.get()) == 1;
  tr.unsupported(Reason::DataDependentBranch, "the truth value of a tensor");
}

// By identity: two that are told apart here are to be two in every call.
Ref TensorVariable::hash_key(Translator& tr) {
  tr.attributes.tensor_operator("__hash__", {this});
  if (!real) return Ref::borrow(value(tr));
  // Of tensors without data only the identity can be of use.
  Ref meta = Ref::steal(native::attr(Ground::guarded(source), real.get(), "is_meta"));
  if (meta.get() == Py_True) {
    tr.guard_identity(source, real.get());
    return real;
  }
  value(tr);
  tr.tensor_is_key();
  return real;
}

// The gradient that a leaf made here has by now.
void TensorVariable::emit_gradient(Codegen& cg, Reg self) {
  static PyObject* grad = PyUnicode_InternFromString("grad");
  Variable* now = cg.tr.force(tensor_attribute(cg.tr, this, grad));
  if (now->is(Kind::Tensor)) cg.recipe.effect(StepKind::SetAttr, {self, cg.reg(now)}, grad);
}

Reg TensorVariable::build(Codegen& cg) {
  Ref wants_grad = Ref::steal(native::of_tensor(fake.get(), "requires_grad")),
      leaf = Ref::steal(native::of_tensor(fake.get(), "is_leaf"));
  if (!wants_grad || !leaf) PyErr_Clear();  // a view that was made without gradients may refuse to say where it is from
  const bool needs = wants_grad.get() == Py_True, made_leaf = needs && leaf.get() == Py_True,
             consumed = needs && !made_leaf && cg.tr.effects.frees_histories && history_is_freed(cg.tr, fake.get());
  if (made_leaf || consumed) cg.tr.tracer().forget_history(fake.get());
  Reg r = cg.tensor(fake.get());
  if (made_leaf)
    r = cg.recipe.make(StepKind::Call, {cg.constant(braze::capture::library().make_leaf), r});
  else if (consumed)
    r = cg.recipe.make(StepKind::Call, {cg.constant(braze::capture::library().mark_consumed), r});
  if (made_leaf || grad_written) emit_gradient(cg, r);
  if (type() != braze::capture::library().tensor && type() != braze::capture::library().parameter) {
    static PyObject* as_class = [] {
      Ref polyfills = Ref::steal(PyImport_ImportModule("braze.polyfills"));
      return polyfills ? native::attr(Ground::fixed(), polyfills.get(), "as_class") : nullptr;
    }();
    if (!as_class) cg.tr.raise_current();
    r = cg.recipe.make(StepKind::Call, {cg.constant(as_class), r, cg.constant(reinterpret_cast<PyObject*>(type()))});
  }
  for (auto& [k, v] : attributes) cg.recipe.effect(StepKind::SetAttr, {r, cg.reg(v)}, k);
  return r;
}

}  // namespace braze::capture
