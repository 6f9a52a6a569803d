// Built-in functions on any object: attributes, types, numbers, iteration.
#include <opcode.h>

#include <algorithm>

#include "capture/builtins/builtins.h"
#include "capture/builtins/sorting.h"
#include "capture/cpython/imported.h"
#include "capture/eval/index_protocol.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_float.h"
#include "capture/vars/tensor_number.h"

namespace braze::capture {
namespace {

PyObject* attribute_name(Translator& tr, Variable* v) {
  PyObject* s = constant_of(tr.force(v));
  if (!s || !PyUnicode_Check(s)) tr.raise(PyExc_TypeError, std::string("attribute name must be string, not '") + v->type()->tp_name + "'");
  if (!PyUnicode_AsUTF8(s)) {
    PyErr_Clear();
    tr.unsupported("an attribute name with surrogates");
  }
  Py_INCREF(s);
  PyUnicode_InternInPlace(&s);
  return tr.keep(Ref::steal(s));
}

// ---- types and attributes ----

Variable* do_len(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  if (a[0]->is(Kind::Tensor)) return a[0]->as<TensorVariable>()->length(tr);
  return tr.integer(tr.len(a[0]), Ground::pure(a));
}

// The second operand of isinstance() may hold classes made of anything that stands for a class: also Sequence, Mapping... of typing.
Ref class_argument(Translator& tr, Variable* v) {
  v = tr.force(v);
  if (v->is(Kind::Tuple)) {
    const auto& elements = v->as<TupleVariable>()->elements;
    Ref t = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(elements.size())));
    for (size_t i = 0; i < elements.size(); ++i) PyTuple_SET_ITEM(t.get(), static_cast<Py_ssize_t>(i), class_argument(tr, elements[i]).release());
    return t;
  }
  if (auto* o = v->is(Kind::Object) ? v->as<ObjectVariable>() : nullptr; o && o->real && (std::string_view(v->type()->tp_name) == "_SpecialGenericAlias" || std::string_view(v->type()->tp_name) == "_UnionGenericAlias")) {
    tr.guard_identity(v->source, o->real.get());
    return o->real;
  }
  return tr.real.to_python(v);
}

Variable* do_isinstance(Translator& tr, Args& a) {
  if (a.size() != 2) return nullptr;
  Ref cls = class_argument(tr, a[1]);
  return tr.boolean(tr.is_instance(a[0], cls.get()), Ground::pure(a));
}

Variable* do_issubclass(Translator& tr, Args& a) {
  if (a.size() != 2) return nullptr;
  Ref c = tr.real.to_python(a[0]), of = tr.real.to_python(a[1]);
  if (PyType_Check(of.get())) return tr.boolean(tr.is_subclass(c.get(), of.get()), Ground::pure(a));
  if (PyType_Check(c.get())) tr.attributes.guard_bases(reinterpret_cast<PyTypeObject*>(c.get()));
  int r = native::is_subclass(Ground::process(ProcessState::Registrations), c.get(), of.get());
  if (r < 0) tr.raise_current();
  // Of a tuple or union of classes: as for each of them.
  Ref classes = PyTuple_Check(of.get()) ? of : Ref::steal(native::attr(Ground::fixed(), of.get(), "__args__"));
  PyErr_Clear();
  for (Py_ssize_t i = 0; r == 0 && classes && PyTuple_Check(classes.get()) && i < PyTuple_GET_SIZE(classes.get()); ++i) tr.guard_registrations(PyTuple_GET_ITEM(classes.get(), i));
  return tr.boolean(r == 1, Ground::pure(a));
}

// type.__instancecheck__(cls, object): without what a metaclass of cls says.
Variable* do_type_instancecheck(Translator& tr, Args& a) {
  PyObject* cls = a.size() == 2 ? a[0]->as_constant() : nullptr;
  if (!cls || !PyType_Check(cls)) return nullptr;
  return tr.boolean(PyType_IsSubtype(tr.force(a[1])->type(), reinterpret_cast<PyTypeObject*>(cls)), Ground::pure(a));
}

Variable* do_type(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  return tr.global_object(reinterpret_cast<PyObject*>(a[0]->type()), Ground::pure(a));
}

Variable* do_callable(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  switch (a[0]->kind) {
    case Kind::Function:
    case Kind::BoundMethod:
    case Kind::BuiltinMethod:
    case Kind::Partial:
    case Kind::Module: return tr.boolean(true, Ground::pure(a));
    case Kind::Object: return tr.boolean(tr.attributes.lookup_on_type(a[0]->type(), tr.intern("__call__"), nullptr) != nullptr, Ground::pure(a));
    default: {
      PyObject* o = a[0]->as_constant();
      return tr.boolean(o ? PyCallable_Check(o) : a[0]->type()->tp_call != nullptr, Ground::pure(a));
    }
  }
}

Variable* do_getattr(Translator& tr, Args& a) {
  if (a.size() < 2 || a.size() > 3) return nullptr;
  PyObject* n = attribute_name(tr, a[1]);
  if (a.size() == 2) return tr.getattr(a[0], n);
  Variable* v = tr.getattr_or_null(a[0], n);
  return v ? v : a[2];
}

Variable* do_hasattr(Translator& tr, Args& a) {
  if (a.size() != 2) return nullptr;
  return tr.boolean(tr.getattr_or_null(a[0], attribute_name(tr, a[1])) != nullptr, Ground::pure(a));
}

Variable* do_setattr(Translator& tr, Args& a) {
  if (a.size() != 3) return nullptr;
  tr.setattr(a[0], attribute_name(tr, a[1]), a[2]);
  return tr.none();
}

Variable* do_delattr(Translator& tr, Args& a) {
  if (a.size() != 2) return nullptr;
  tr.setattr(a[0], attribute_name(tr, a[1]), nullptr);
  return tr.none();
}

Variable* do_vars(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  Variable* own = tr.getattr_or_null(a[0], "__dict__");
  if (!own) tr.raise(PyExc_TypeError, "vars() argument must have __dict__ attribute");
  return own;
}

// super() finds its class and instance in the frame that calls it.
Variable* do_super(Translator& tr, Args& a) {
  Variable *cls = nullptr, *self = nullptr;
  if (a.size() == 2) {
    cls = a[0];
    self = a[1];
  } else if (a.size() == 0) {
    Frame* f = tr.frame();
    for (int i = 0; i < f->code->num_locals_plus; ++i)
      if (PyUnicode_CompareWithASCIIString(f->code->local_name(i), "__class__") == 0 && f->locals[static_cast<size_t>(i)]) {
        Variable* cell = tr.force(f->locals[static_cast<size_t>(i)]);
        if (cell->is(Kind::Cell)) cls = cell->as<CellVariable>()->get(tr);
      }
    if (f->code->code->co_argcount == 0) tr.raise(PyExc_RuntimeError, "super(): no arguments");
    self = f->locals[0];
    if (self && self->is(Kind::Cell) && f->code->is_cell(0)) self = self->as<CellVariable>()->get(tr);
  }
  if (!cls || !self) return nullptr;
  cls = tr.force(cls);
  self = tr.force(self);
  PyObject* c = cls->as_constant();
  if (!c || !PyType_Check(c)) return nullptr;
  PyObject* s = self->as_constant();
  bool through_class = s && PyType_Check(s) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(s), reinterpret_cast<PyTypeObject*>(c));
  if (!through_class && !PyType_IsSubtype(self->type(), reinterpret_cast<PyTypeObject*>(c))) return nullptr;
  return tr.make<SuperVariable>(reinterpret_cast<PyTypeObject*>(c), self);
}

Variable* do_id(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  // Of something that was there before, and that is then held to be the same object.
  PyObject* real = nullptr;
  if (a[0]->is(Kind::Function)) real = a[0]->as<FunctionVariable>()->real.get();
  if (a[0]->is(Kind::Object) || a[0]->is(Kind::Module)) real = a[0]->as<ObjectVariable>()->real.get();
  if (a[0]->is(Kind::Real)) real = a[0]->as_constant();
  if (a[0]->is(Kind::List)) real = a[0]->as<ListVariable>()->real.get();
  if (a[0]->is(Kind::Dict)) real = a[0]->as<DictVariable>()->real.get();
  if (a[0]->is(Kind::Tensor)) real = a[0]->as<TensorVariable>()->real.get();
  if (!real) tr.unsupported("id() of " + a[0]->describe());
  tr.guard_identity(a[0]->source, real);
  return tr.constant(Ref::steal(PyLong_FromVoidPtr(real)), Ground::pure(a));
}

Variable* do_object_new(Translator& tr, Args& a) {
  if (a.size() < 1) return nullptr;
  PyObject* c = a[0]->as_constant();
  if (!c || !PyType_Check(c)) return nullptr;
  auto* cls = reinterpret_cast<PyTypeObject*>(c);
  if (cls->tp_new != PyBaseObject_Type.tp_new && !(cls->tp_flags & Py_TPFLAGS_HEAPTYPE)) return nullptr;
  if (PyType_IsSubtype(cls, library().tensor) || PyType_IsSubtype(cls, library().module)) return nullptr;
  if ((a.size() > 1 || !a.kw.empty()) && (tr.attributes.lookup_on_type(cls, tr.intern("__new__"), nullptr) != library().object_new || tr.attributes.lookup_on_type(cls, tr.intern("__init__"), nullptr) == library().object_init))
    return nullptr;  // an error
  if (cls->tp_flags & Py_TPFLAGS_IS_ABSTRACT || tr.attributes.lookup_on_type(cls, tr.intern("__del__"), nullptr)) return nullptr;
  return tr.make<ObjectVariable>(cls);
}

Variable* do_tuple_new(Translator& tr, Args& a) {
  if (a.size() < 1 || a.size() > 2) return nullptr;
  PyObject* c = a[0]->as_constant();
  if (!c || !PyType_Check(c)) return nullptr;
  return tr.make_tuple(reinterpret_cast<PyTypeObject*>(c), a.size() == 2 ? tr.unpack(a[1]) : std::vector<Variable*>{});
}

// ---- numbers ----

Variable* number(Translator& tr, Args& a, PyTypeObject* type) {
  if (a.size() == 1) {
    if (a[0]->is(Kind::Tensor))
      if (Variable* n = number_of(tr, a[0]->as<TensorVariable>(), type)) return n;
    if (a[0]->is(Kind::Tensor)) tr.unsupported(Reason::ScalarFromTensor, std::string(type->tp_name) + "() of a tensor");
    if (a[0]->is(Kind::Object)) {
      const char* m = type == &PyLong_Type ? "__int__" : type == &PyFloat_Type ? "__float__" : "__complex__";
      if (Variable* f = tr.attributes.special_method(a[0], m)) {
        Variable* v = tr.force(tr.call(f, {a[0]}));
        if (v->type() != type) tr.unsupported(std::string(m) + " that does not return a number of its kind");
        return v;
      }
    }
    // Of a number or text of the program's class, the class may say what it is as a number.
    if (PyTypeObject* t = a[0]->type(); !is_fixed_type(t) && !a[0]->is(Kind::Object))
      for (const char* m : {"__int__", "__float__", "__complex__", "__index__", "__trunc__"})
        if (PyObject* own = tr.attributes.lookup_on_type(t, tr.intern(m), nullptr); own && PyFunction_Check(own)) tr.unsupported(std::string(type->tp_name) + "() of " + a[0]->describe());
    // A symbolic int stays one.
    if (a[0]->is(Kind::Sym) && a[0]->type() == type) return a[0];
    bool unknown = type == &PyFloat_Type && tr.may_be_unbacked() && a[0]->is(Kind::Sym) && a[0]->type() == &PyLong_Type;
    if (unknown && tr.tracer().depends_on_data(a[0]->as<SymVariable>()->value.get()))
      if (Variable* f = float_arithmetic(tr, NB_MULTIPLY, a[0], tr.constant(tr.keep(Ref::steal(PyFloat_FromDouble(1))), Ground::pure(a)))) return f;
  }
  return tr.real.call_pure(reinterpret_cast<PyObject*>(type), a);
}
Variable* do_int(Translator& tr, Args& a) { return number(tr, a, &PyLong_Type); }
Variable* do_float(Translator& tr, Args& a) { return number(tr, a, &PyFloat_Type); }

Variable* do_bool(Translator& tr, Args& a) {
  if (a.size() > 1) return nullptr;
  return tr.boolean(a.size() == 1 && tr.truth(a[0]), Ground::pure(a));
}

Variable* do_truth(Translator& tr, Args& a) { return a.size() == 1 ? tr.boolean(tr.truth(a[0]), Ground::pure(a)) : nullptr; }

Variable* do_concat(Translator& tr, Args& a) {
  if (a.size() != 2 || !a[0]->type()->tp_as_sequence || !a[0]->type()->tp_as_sequence->sq_concat) return nullptr;
  return tr.binary_op(NB_ADD, a[0], a[1]);
}

Variable* do_str(Translator& tr, Args& a) {
  if (!a.kw.empty() || a.size() > 1) return nullptr;
  if (a.size() == 0) return tr.string("", Ground::fixed());
  // The method decides, also for a str of a class of its own.
  if (SourceId at; a[0]->is(Kind::Object)) {
    PyObject* own = tr.attributes.lookup_on_type(a[0]->type(), tr.intern("__str__"), &at);
    if (own && PyFunction_Check(own)) {
      Variable* s = tr.force(tr.call(tr.attributes.bind_descriptor(own, at, a[0], a[0]->type(), tr.intern("__str__")), std::vector<Variable*>{}));
      if (!PyType_IsSubtype(s->type(), &PyUnicode_Type)) tr.raise(PyExc_TypeError, std::string("__str__ returned non-string (type ") + s->type()->tp_name + ")");
      return s;
    }
  }
  return tr.format(a[0], "", 1);
}

Variable* do_repr(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  return tr.format(a[0], "", 2);
}

Variable* do_format(Translator& tr, Args& a) {
  if (a.size() < 1 || a.size() > 2) return nullptr;
  std::string spec;
  if (a.size() == 2) {
    PyObject* s = constant_of(a[1]);
    Py_ssize_t length = 0;
    const char* text = s && PyUnicode_Check(s) ? PyUnicode_AsUTF8AndSize(s, &length) : nullptr;
    PyErr_Clear();
    if (!text) return nullptr;
    spec.assign(text, static_cast<size_t>(length));
  }
  return tr.format(a[0], spec, 0);
}

// math's roundings ask an object first.
template <int which>
Variable* do_rounding(Translator& tr, Args& a) {
  constexpr const char* kNames[] = {"__floor__", "__ceil__", "__trunc__"};
  if (a.size() != 1 || !a.kw.empty() || !a[0]->is(Kind::Object)) return nullptr;
  Variable* f = tr.attributes.special_method(a[0], kNames[which]);
  return f && f->is(Kind::Function) ? tr.call(f, a) : nullptr;
}

Variable* do_hash(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  if (a[0]->is(Kind::Constant)) a[0]->hash_key(tr);  // its class may have a say
  if (Variable* f = a[0]->is(Kind::Object) ? tr.attributes.special_method(a[0], "__hash__") : nullptr; f && f->is(Kind::Function)) return tr.call(f, {a[0]});
  if (a[0]->type() == &PyTuple_Type && a[0]->is(Kind::Tuple) && !tr.real.is_python_constant(a[0])) {
    // A tuple of objects with the hashes of its items hashes as it does.
    static PyObject *hash = native::builtin("hash"), *hashed = imported("braze.polyfills", "Hashed");
    Ref like = Ref::steal(PyTuple_New(a[0]->len(tr)));
    Py_ssize_t at = 0;
    for (Variable* e : a[0]->items(tr)) {
      PyObject* number = constant_of(tr.force(tr.call(tr.global_object(hash, Ground::pure(a)), {e})));
      if (!number || !hashed) return nullptr;
      PyTuple_SET_ITEM(like.get(), at++, PyObject_CallOneArg(hashed, number));
    }
    Py_hash_t h = PyObject_Hash(like.get());
    if (h == -1) tr.raise_current();
    return tr.integer(h, Ground::pure(a));
  }
  if (!tr.real.is_python_constant(a[0])) return nullptr;
  Ref k = tr.real.to_python(a[0]);
  Py_hash_t h = PyObject_Hash(k.get());
  if (h == -1) tr.raise_current();
  return tr.integer(h, Ground::pure(a));
}

Variable* do_abs(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  if (a[0]->is(Kind::Tensor)) return tr.real.call_torch(native::builtin("abs"), a);
  if (a[0]->is(Kind::Array)) return array_operator(tr, "abs", {a[0]});
  if (a[0]->is(Kind::Object))
    if (Variable* f = tr.attributes.special_method(a[0], "__abs__")) return tr.call(f, {a[0]});
  return tr.real.call_pure(native::builtin("abs"), a);
}

Variable* do_pow(Translator& tr, Args& a) {
  if (a.size() == 2 && a.kw.empty()) return tr.binary_op(NB_POWER, a[0], a[1]);
  return tr.real.call_pure(native::builtin("pow"), a);
}

Variable* do_divmod(Translator& tr, Args& a) {
  if (a.size() != 2 || a[0]->is(Kind::Tensor) || a[1]->is(Kind::Tensor)) return nullptr;
  bool numbers = a[0]->is(Kind::Sym) || a[1]->is(Kind::Sym);
  if (!numbers) {
    const std::pair<size_t, const char*> tries[] = {{0, "__divmod__"}, {1, "__rdivmod__"}};
    for (auto [i, name] : tries) {
      Variable* f = a[i]->is(Kind::Object) ? tr.attributes.special_method(a[i], name) : nullptr;
      if (!f || !f->is(Kind::Function)) continue;
      Variable* r = tr.force(tr.call(f, {a[i], a[1 - i]}));
      if (constant_of(r) != Py_NotImplemented) return r;
    }
    return tr.real.call_pure(native::builtin("divmod"), a);
  }
  return tr.tuple({tr.binary_op(NB_FLOOR_DIVIDE, a[0], a[1]), tr.binary_op(NB_REMAINDER, a[0], a[1])});
}

Variable* do_round(Translator& tr, Args& a) {
  if (a.size() >= 1 && a[0]->is(Kind::Tensor)) return tr.real.call_torch(native::builtin("round"), a);
  if (Variable* f = a.size() >= 1 && a.kw.empty() && a[0]->is(Kind::Object) ? tr.attributes.special_method(a[0], "__round__") : nullptr; f && f->is(Kind::Function)) return tr.call(f, a);
  if (a.size() == 2) a.pos[1] = index_of(tr, a[1]);
  return tr.real.call_pure(native::builtin("round"), a);
}

Variable* extreme(Translator& tr, Args& a, int op, const char* name) {
  Variable *key = a.take_kw("key"), *fallback = a.take_kw("default");
  if (key && is_none(tr.force(key))) key = nullptr;
  if (!a.kw.empty() || a.size() == 0 || (a.size() > 1 && fallback)) return nullptr;
  std::vector<Variable*> items = a.size() == 1 ? tr.unpack(a[0]) : a.pos;
  if (items.empty()) {
    if (fallback) return fallback;
    tr.raise(PyExc_ValueError, std::string(name) + "() arg is an empty sequence");
  }
  Variable *best = items[0], *best_key = key ? tr.call(key, {best}) : best;
  for (size_t i = 1; i < items.size(); ++i) {
    Variable* k = key ? tr.call(key, {items[i]}) : items[i];
    // Symbolic sizes stay symbolic.
    auto integer = [&](Variable* v) { return tr.force(v)->type() == &PyLong_Type; };
    if (!key && (tr.force(k)->is(Kind::Sym) || tr.force(best_key)->is(Kind::Sym)) && integer(k) && integer(best_key)) {
      static PyObject* sym_max = native::attr(Ground::fixed(), library().torch, "sym_max");
      static PyObject* sym_min = native::attr(Ground::fixed(), library().torch, "sym_min");
      best = best_key = tr.real.query_torch(op == Py_GT ? sym_max : sym_min, Args{{best, k}, {}});
      continue;
    }
    if (tr.truth(tr.compare(op, k, best_key))) {
      best = items[i];
      best_key = k;
    }
  }
  return best;
}
Variable* do_max(Translator& tr, Args& a) { return extreme(tr, a, Py_GT, "max"); }
Variable* do_min(Translator& tr, Args& a) { return extreme(tr, a, Py_LT, "min"); }

Variable* do_sum(Translator& tr, Args& a) {
  if (a.size() < 1 || a.size() > 2) return nullptr;
  Variable* start = a.size() > 1 ? a[1] : a.take_kw("start");
  if (!a.kw.empty()) return nullptr;
  Variable* total = start ? start : tr.integer(0, Ground::fixed());
  if (PyObject* c = tr.force(total)->as_constant(); c && (PyUnicode_Check(c) || PyBytes_Check(c) || PyByteArray_Check(c))) return nullptr;
  for (Variable* v : tr.unpack(a[0])) total = tr.binary_op(NB_ADD, total, v);
  return total;
}

Variable* do_any(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  Variable* it = tr.iter(a[0]);
  while (Variable* v = tr.next(it))
    if (tr.truth(v)) return tr.boolean(true, Ground::pure(a));
  return tr.boolean(false, Ground::pure(a));
}

Variable* do_all(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  Variable* it = tr.iter(a[0]);
  while (Variable* v = tr.next(it))
    if (!tr.truth(v)) return tr.boolean(false, Ground::pure(a));
  return tr.boolean(true, Ground::pure(a));
}

// ---- iteration ----

Variable* do_iter(Translator& tr, Args& a) {
  if (a.size() == 2 && !tr.truth(tr.call(tr.global_object(native::builtin("callable"), Ground::pure(a)), {a[0]}))) return nullptr;
  if (a.size() == 2) return tr.make<CallIterator>(a[0], a[1]);
  return a.size() == 1 ? tr.iter(a[0]) : nullptr;
}

Variable* do_next(Translator& tr, Args& a) {
  if (a.size() < 1 || a.size() > 2) return nullptr;
  if (Variable* v = tr.next(a[0])) return v;
  if (a.size() == 2) return a[1];
  std::vector<Variable*> args;
  if (a[0]->is(Kind::Generator) && !is_none(tr.force(a[0]->as<GeneratorVariable>()->result))) args.push_back(a[0]->as<GeneratorVariable>()->result);
  tr.raise(tr.call(tr.global_object(PyExc_StopIteration, Ground::fixed()), args));
}

Variable* do_enumerate(Translator& tr, Args& a) {
  Variable* start = a.size() > 1 ? a[1] : a.take_kw("start");
  if (a.size() < 1 || a.size() > 2 || !a.kw.empty()) return nullptr;
  int64_t n = 0;
  if (start) {
    Ref s = tr.real.to_python(start);
    n = PyLong_AsLongLong(s.get());
    if (n == -1 && PyErr_Occurred()) tr.raise_current();
  }
  return tr.make<EnumerateIterator>(tr.iter(a[0]), n);
}

Variable* do_zip(Translator& tr, Args& a) {
  Variable* strict = a.take_kw("strict");
  if (!a.kw.empty()) return nullptr;
  std::vector<Variable*> its;
  for (Variable* v : a.pos) its.push_back(tr.iter(v));
  return tr.make<ZipIterator>(std::move(its), strict && tr.truth(strict));
}

Variable* do_map(Translator& tr, Args& a) {
  if (a.size() < 2) return nullptr;
  std::vector<Variable*> its;
  for (size_t i = 1; i < a.size(); ++i) its.push_back(tr.iter(a[i]));
  return tr.make<MapIterator>(a[0], std::move(its));
}

Variable* do_filter(Translator& tr, Args& a) {
  if (a.size() != 2) return nullptr;
  return tr.make<FilterIterator>(a[0], tr.iter(a[1]));
}

Variable* do_reversed(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  if (a[0]->is(Kind::Real) && PyType_Check(a[0]->as_constant()))  // of an enum
    if (Variable* f = tr.attributes.special_method(a[0], "__reversed__"); f && f->is(Kind::Function)) return tr.call(f, {a[0]});
  bool object = a[0]->is(Kind::Object) || a[0]->is(Kind::Module);
  if (object && tr.attributes.lookup_on_type(a[0]->type(), tr.intern("__reversed__"), nullptr) == Py_None)
    tr.raise(PyExc_TypeError, std::string("'") + a[0]->type()->tp_name + "' object is not reversible");
  if (object)
    if (Variable* f = tr.attributes.special_method(a[0], "__reversed__")) return tr.call(f, {a[0]});
  std::vector<Variable*> all;
  if (object) {
    if (!tr.attributes.special_method(a[0], "__getitem__")) tr.raise(PyExc_TypeError, std::string("'") + a[0]->type()->tp_name + "' object is not reversible");
    int64_t n = tr.len(a[0]);
    for (int64_t i = n - 1; i >= 0; --i) all.push_back(tr.getitem(a[0], tr.integer(i, Ground::pure(a))));
  } else if (a[0]->is(Kind::Tuple) || a[0]->is(Kind::List)) {
    return tr.make<ReversedIterator>(static_cast<SequenceVariable*>(a[0]));
  } else if (a[0]->is(Kind::Dict) || a[0]->is(Kind::DictView)) {
    Args none;
    return a[0]->call_method(tr, "__reversed__", none);
  } else if (PyObject* c = constant_of(a[0]); c && PyRange_Check(c)) {
    auto part = [&](const char* name) {
      Ref n = Ref::steal(native::attr(Ground::pure(a), c, name));
      int64_t v = PyLong_AsLongLong(n.get());
      if (v == -1 && PyErr_Occurred()) PyErr_Clear(), tr.unsupported("a range beyond 64 bits");
      return v;
    };
    int64_t start = part("start"), step = part("step"), n = tr.len(a[0]);
    int64_t back, last;
    if (__builtin_sub_overflow(int64_t{0}, step, &back) || __builtin_mul_overflow(n - 1, step, &last) || __builtin_add_overflow(start, last, &last))
      tr.unsupported("a range beyond 64 bits");
    return tr.make<RangeIterator>(last, back, n);
  } else if (c && PySequence_Check(c)) {
    return tr.make<ReversedIterator>(tr.tuple(tr.unpack(a[0])));
  } else {
    return nullptr;
  }
  return tr.tuple(all)->iter(tr);
}

Variable* do_sorted(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  Variable *key = a.take_kw("key"), *reverse = a.take_kw("reverse");
  if (!a.kw.empty()) return nullptr;
  return tr.list(sort_variables(tr, tr.unpack(a[0]), key, reverse && tr.truth(reverse)));
}

// types.MethodType(function, self)
Variable* do_method(Translator& tr, Args& a) {
  if (a.size() != 2 || !a.kw.empty() || is_none(a[1])) return nullptr;
  return tr.make<BoundMethodVariable>(a[0], a[1]);
}

Variable* do_exception(Translator& tr, Args& a) {
  if (a.size()) return nullptr;
  Variable* e = tr.being_handled();
  return e ? e : tr.none();
}

Variable* do_exc_info(Translator& tr, Args& a) {
  if (a.size()) return nullptr;
  Variable* e = tr.being_handled();
  if (!e) return tr.tuple({tr.none(), tr.none(), tr.none()});
  return tr.tuple({tr.global_object(reinterpret_cast<PyObject*>(e->type()), Ground::pure(a)), e, tr.getattr(e, "__traceback__")});
}

Variable* do_range(Translator& tr, Args& a) {
  // Bounds that are symbolic are specialised: the loop is unrolled.
  for (Variable*& v : a.pos)
    if (v->is(Kind::Sym)) {
      Ref n = Ref::steal(PyNumber_Long(v->as<SymVariable>()->value.get()));
      if (!n) tr.raise_current();
      v = tr.constant(n, Ground::pure(a));
    } else if (v->is(Kind::Tensor)) {
      if (Variable* n = tr.may_be_unbacked() ? number_of(tr, v->as<TensorVariable>(), &PyLong_Type) : nullptr) {
        v = tr.real.specialised(n);  // a literal's value, or the reason why there is none
        continue;
      }
      tr.unsupported(Reason::ScalarFromTensor, "range() of a tensor");
    }
  return tr.real.call_pure(reinterpret_cast<PyObject*>(&PyRange_Type), a);
}

Variable* do_slice(Translator& tr, Args& a) {
  if (a.size() == 1) return tr.make<SliceVariable>(tr.none(), a[0], tr.none());
  if (a.size() == 2) return tr.make<SliceVariable>(a[0], a[1], tr.none());
  return a.size() == 3 ? tr.make<SliceVariable>(a[0], a[1], a[2]) : nullptr;
}

Variable* do_globals(Translator& tr, Args&) { return tr.globals_dict(*tr.frame()); }

Variable* do_locals(Translator& tr, Args& a) {
  Frame* f = tr.frame();
  if (a.size() || !(f->code->code->co_flags & CO_OPTIMIZED)) return nullptr;
  auto* d = tr.dict();
  for (int i = 0; i < f->code->num_locals_plus; ++i) {
    Variable* v = f->locals[static_cast<size_t>(i)];
    if (v && (f->code->is_cell(i) || f->code->is_free(i)) && v->is(Kind::Cell)) v = v->as<CellVariable>()->get(tr);
    if (v) d->set(tr, f->code->local_name(i), v);
  }
  return d;
}

Variable* do_import_module(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  Ref n = tr.real.to_python(a[0]);
  Ref m = Ref::steal(PyImport_Import(n.get()));
  if (!m) tr.raise_current();
  m = Ref::steal(PyImport_GetModule(n.get()));
  return tr.global_object(m.get(), Ground::pure(a));
}

// ---- operator module ----

template <int op>
Variable* binary(Translator& tr, Args& a) {
  return a.size() == 2 ? tr.binary_op(op, a[0], a[1]) : nullptr;
}
template <int op>
Variable* comparison(Translator& tr, Args& a) {
  return a.size() == 2 ? tr.compare(op, a[0], a[1]) : nullptr;
}
template <Opcode op>
Variable* unary(Translator& tr, Args& a) {
  return a.size() == 1 ? tr.unary_op(op, a[0]) : nullptr;
}
Variable* do_op_getitem(Translator& tr, Args& a) { return a.size() == 2 ? tr.getitem(a[0], a[1]) : nullptr; }
Variable* do_op_setitem(Translator& tr, Args& a) {
  if (a.size() != 3) return nullptr;
  tr.setitem(a[0], a[1], a[2]);
  return tr.none();
}
Variable* do_op_delitem(Translator& tr, Args& a) {
  if (a.size() != 2) return nullptr;
  tr.delitem(a[0], a[1]);
  return tr.none();
}
Variable* do_op_contains(Translator& tr, Args& a) { return a.size() == 2 ? tr.boolean(tr.contains(a[0], a[1]), Ground::pure(a)) : nullptr; }
Variable* do_op_is(Translator& tr, Args& a) { return a.size() == 2 ? tr.boolean(tr.identical(a[0], a[1]), Ground::pure(a)) : nullptr; }
Variable* do_op_is_not(Translator& tr, Args& a) { return a.size() == 2 ? tr.boolean(!tr.identical(a[0], a[1]), Ground::pure(a)) : nullptr; }

Variable* do_cast(Translator&, Args& a) { return a.size() == 2 ? a.pos[1] : nullptr; }

}  // namespace

void register_core_builtins() {
  struct Row {
    const char* name;
    BuiltinHandler handler;
  };
  const Row rows[] = {{"len", do_len}, {"isinstance", do_isinstance}, {"issubclass", do_issubclass}, {"type", do_type}, {"callable", do_callable},
      {"getattr", do_getattr}, {"hasattr", do_hasattr}, {"setattr", do_setattr}, {"delattr", do_delattr}, {"vars", do_vars}, {"super", do_super},
      {"id", do_id}, {"int", do_int}, {"float", do_float}, {"bool", do_bool}, {"str", do_str}, {"repr", do_repr}, {"format", do_format},
      {"hash", do_hash}, {"abs", do_abs}, {"pow", do_pow}, {"divmod", do_divmod}, {"round", do_round}, {"max", do_max}, {"min", do_min}, {"sum", do_sum},
      {"any", do_any}, {"all", do_all}, {"iter", do_iter}, {"next", do_next}, {"enumerate", do_enumerate}, {"zip", do_zip}, {"map", do_map},
      {"filter", do_filter}, {"reversed", do_reversed}, {"sorted", do_sorted}, {"range", do_range}, {"slice", do_slice}, {"globals", do_globals}, {"locals", do_locals}};
  for (const Row& r : rows) register_builtin("builtins", r.name, r.handler);
  register_builtin(library().object_new, do_object_new);
  register_builtin("builtins", "tuple.__new__", do_tuple_new);
  register_builtin("builtins", "type.__instancecheck__", do_type_instancecheck);
  register_builtin("importlib", "import_module", do_import_module);
  register_builtin("types", "MethodType", do_method);
  register_builtin("sys", "exc_info", do_exc_info);
  register_builtin("sys", "exception", do_exception);
  register_builtin("typing", "cast", do_cast);
  register_builtin("math", "floor", do_rounding<0>);
  register_builtin("math", "ceil", do_rounding<1>);
  register_builtin("math", "trunc", do_rounding<2>);

  const Row operators[] = {{"add", binary<NB_ADD>}, {"and_", binary<NB_AND>}, {"floordiv", binary<NB_FLOOR_DIVIDE>}, {"lshift", binary<NB_LSHIFT>},
      {"matmul", binary<NB_MATRIX_MULTIPLY>}, {"mul", binary<NB_MULTIPLY>}, {"mod", binary<NB_REMAINDER>}, {"or_", binary<NB_OR>}, {"pow", binary<NB_POWER>},
      {"rshift", binary<NB_RSHIFT>}, {"sub", binary<NB_SUBTRACT>}, {"truediv", binary<NB_TRUE_DIVIDE>}, {"xor", binary<NB_XOR>},
      {"iadd", binary<NB_INPLACE_ADD>}, {"iand", binary<NB_INPLACE_AND>}, {"imul", binary<NB_INPLACE_MULTIPLY>}, {"ior", binary<NB_INPLACE_OR>},
      {"isub", binary<NB_INPLACE_SUBTRACT>}, {"itruediv", binary<NB_INPLACE_TRUE_DIVIDE>}, {"concat", do_concat},
      {"lt", comparison<Py_LT>}, {"le", comparison<Py_LE>}, {"eq", comparison<Py_EQ>}, {"ne", comparison<Py_NE>}, {"gt", comparison<Py_GT>}, {"ge", comparison<Py_GE>},
      {"neg", unary<Opcode::UnaryNegative>}, {"pos", unary<Opcode::UnaryPositive>}, {"invert", unary<Opcode::UnaryInvert>}, {"inv", unary<Opcode::UnaryInvert>},
      {"not_", unary<Opcode::UnaryNot>}, {"truth", do_truth}, {"abs", do_abs}, {"getitem", do_op_getitem}, {"setitem", do_op_setitem}, {"delitem", do_op_delitem},
      {"contains", do_op_contains}, {"is_", do_op_is}, {"is_not", do_op_is_not}};
  for (const Row& r : operators) register_builtin("operator", r.name, r.handler);

  for (const char* n : {"len", "isinstance", "issubclass", "type", "callable", "getattr", "hasattr", "setattr", "delattr", "vars", "super", "id", "bool", "repr", "format",
                        "hash", "abs", "divmod", "any", "all", "iter", "next", "map", "filter", "reversed", "slice", "globals", "list", "tuple", "set", "frozenset"})
    register_no_keywords("builtins", n);
  for (const Row& r : operators) register_no_keywords("operator", r.name);
  for (const char* n : {"chr", "ord", "hex", "oct", "bin", "ascii", "complex", "bytes"}) register_pure("builtins", n);
  for (const char* n : {"index", "length_hint"}) register_pure("operator", n);
  register_pure("posix", "fspath");
  register_pure("builtins", "str.maketrans");
  for (const char* n : {"pack", "unpack", "calcsize"}) register_pure("_struct", n);
  for (const char* n : {"acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "isclose", "isfinite", "isinf", "isnan", "log", "log10", "phase", "polar", "rect", "sin",
                        "sinh", "sqrt", "tan", "tanh"})
    register_pure("cmath", n);
  for (const char* n : {"dumps", "loads"}) register_pure("json", n);
  for (const char* n : {"finfo", "iinfo"}) register_pure("numpy", n);
  Ref math = Ref::steal(PyImport_ImportModule("math"));
  Ref names = Ref::steal(PyObject_Dir(math.get()));
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(names.get()); ++i) {
    const char* n = PyUnicode_AsUTF8(PyList_GET_ITEM(names.get(), i));
    Ref f = Ref::steal(native::attr(Ground::fixed(), math.get(), n));
    if (PyCFunction_Check(f.get())) register_pure("math", n);
  }
}

}  // namespace braze::capture
