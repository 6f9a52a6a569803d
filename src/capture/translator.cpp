// Making variables, Python's protocols on them, calls into CPython and PyTorch.
#include "capture/translator.h"

#include <pthread.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "capture/builtins.h"
#include "capture/known.h"
#include "capture/open_sizes.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

// Implemented in C: an instance holds nothing that we could follow.
bool is_opaque(PyTypeObject* t) {
  static const destructor python_defined = known().module->tp_dealloc;
  if (t == known().simple_namespace) return false;
  return t->tp_dealloc != python_defined && t != &PyBaseObject_Type && !PyType_IsSubtype(t, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
}

PyObject* real_of(Variable* v) {
  switch (v->kind) {
    case Kind::Constant: return v->as<ConstantVariable>()->value.get();
    case Kind::Real: return v->as<RealVariable>()->object.get();
    case Kind::Object:
    case Kind::Module: return v->as<ObjectVariable>()->real.get();
    case Kind::Function: return v->as<FunctionVariable>()->real.get();
    case Kind::Tensor: return v->as<TensorVariable>()->real.get();
    case Kind::Dict: return v->as<DictVariable>()->real.get();
    case Kind::Cell: return v->as<CellVariable>()->real.get();
    case Kind::Tuple: return v->as<TupleVariable>()->real.get();
    default: return nullptr;
  }
}

}  // namespace

// ---- making variables ----

Variable* Translator::constant(PyObject* o) {
  if (o == Py_None) return none_;
  if (o == Py_True) return true_;
  if (o == Py_False) return false_;
  return make<ConstantVariable>(o);
}

Variable* Translator::integer(int64_t n) {
  auto [it, fresh] = integers_.try_emplace(n);
  if (fresh) it->second = make<ConstantVariable>(Ref::steal(PyLong_FromLongLong(n)).get());
  return it->second;
}

Variable* Translator::string(const std::string& s) {
  return constant(Ref::steal(PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()))));
}

TupleVariable* Translator::tuple(std::vector<Variable*> items) { return make<TupleVariable>(std::move(items)); }
ListVariable* Translator::list(std::vector<Variable*> items) { return make<ListVariable>(std::move(items)); }
DictVariable* Translator::dict() { return make<DictVariable>(); }

PyObject* Translator::intern(const char* s) {
  auto it = interned_.find(s);
  if (it != interned_.end()) return it->second;
  PyObject* o = keep(Ref::steal(PyUnicode_InternFromString(s)));
  interned_.emplace(std::string_view(PyUnicode_AsUTF8(o)), o);
  return o;
}

Variable* Translator::wrap(PyObject* object, SourceId source) {
  auto [it, fresh] = by_source_.try_emplace(source.index);
  if (fresh) {
    auto* v = make<LazyVariable>(object);
    v->source = source;
    it->second = v;
  }
  return it->second;
}

Variable* Translator::global_object(PyObject* o) {
  if (is_constant_type(Py_TYPE(o)) || PyObject_TypeCheck(o, known().enum_)) return constant(o);
  auto [it, fresh] = global_objects_.try_emplace(o);
  if (fresh) {
    SourceId s = sources().constant(o);
    it->second = force(wrap(o, s));
  }
  return it->second;
}

Variable* Translator::from_python(Ref object) {
  PyObject* o = object.get();
  PyTypeObject* t = Py_TYPE(o);
  if (o == Py_None || o == Py_True || o == Py_False) return constant(o);
  if (is_constant_type(t) || PyObject_TypeCheck(o, known().enum_)) return constant(o);
  if (PyObject_TypeCheck(o, known().tensor)) {
    auto [it, fresh] = by_object_.try_emplace(o);
    if (fresh) {
      if (!tracer().is_fake(o)) {
        // Made outside of the recorder's sight: it becomes a constant of the graph.
        PyObject* f = tracer().lift(o, graph::InputKind::Constant, "constant");
        if (!f) raise_current();
        it->second = make<TensorVariable>(Ref::steal(f).get());
        by_object_[it->second->as<TensorVariable>()->fake.get()] = it->second;
        keep(object);
      } else {
        it->second = make<TensorVariable>(o);
        it->second->as<TensorVariable>()->inference = inference;
        keep(object);
      }
    }
    return it->second;
  }
  const Known& k = known();
  if (t == k.sym_float) return make<SymVariable>(o)->specialise(*this);  // computed from the sizes of this call
  if (t == k.sym_int || t == k.sym_bool) return make<SymVariable>(o);
  if (PySlice_Check(o)) {
    auto* s = reinterpret_cast<PySliceObject*>(o);
    return make<SliceVariable>(from_python(Ref::borrow(s->start)), from_python(Ref::borrow(s->stop)), from_python(Ref::borrow(s->step)));
  }
  if (PyTuple_Check(o)) {
    std::vector<Variable*> items;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) items.push_back(from_python(Ref::borrow(PyTuple_GET_ITEM(o, i))));
    return make<TupleVariable>(std::move(items), t);
  }
  if (PyList_CheckExact(o)) {
    std::vector<Variable*> items;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); ++i) items.push_back(from_python(Ref::borrow(PyList_GET_ITEM(o, i))));
    return list(std::move(items));
  }
  if (PyDict_CheckExact(o)) {
    auto* d = dict();
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    while (PyDict_Next(o, &pos, &key, &value)) d->set(*this, from_python(Ref::borrow(key)), from_python(Ref::borrow(value)));
    return d;
  }
  if (PyAnySet_CheckExact(o)) {
    auto* s = make<SetVariable>(t);
    Ref it = Ref::steal(PyObject_GetIter(o));
    while (Ref e = Ref::steal(PyIter_Next(it.get()))) s->add(*this, from_python(e));
    return s;
  }
  if (PyExceptionInstance_Check(o)) {
    auto* e = make<ObjectVariable>(t);
    Ref args = Ref::steal(PyObject_GetAttrString(o, "args"));
    e->base = args ? from_python(args) : tuple({});
    return e;
  }
  if (hosting_ && !PyType_Check(o) && !PyModule_Check(o)) return host_object(object);
  return global_object(o);
}

bool Translator::anchored(SourceId s) {
  for (SourceId at = s; at.valid(); at = sources()[at].base) {
    if (sources()[at].kind == SourceKind::TensorAttr) return false;
    if (sources()[at].kind == SourceKind::Const) return true;
    if (identities_.count(at.index)) return true;
  }
  return false;
}

void Translator::guard_identity(SourceId s, PyObject* o) {
  if (!s.valid() || sources()[s].kind == SourceKind::Const) return;
  if (identities_.emplace(s.index, true).second) guards().identity(s, o, line());
}

Variable* Translator::force_lazy(Variable* v) {
  auto* lazy = v->as<LazyVariable>();
  if (!lazy->forced && lazy->function) {
    Variable *left = force(lazy->left), *right = force(lazy->right);
    if (left->is(Kind::Sym) || right->is(Kind::Sym)) {
      lazy->forced = force(call(global_object(lazy->function), {left, right}));
    } else {
      lazy->forced = constant(lazy->object);
    }
  }
  if (!lazy->forced) lazy->forced = classify(lazy->object.get(), v->source);
  return lazy->forced;
}

// The content of a set that was there before, guarded.
Variable* Translator::known_set(PyObject* o, SourceId s) {
  guards().set_members(s, o, line());
  std::unordered_map<PyObject*, Variable*> of;
  PyObject* key;
  Py_ssize_t pos = 0;
  Py_hash_t hash;
  while (_PySet_NextEntry(o, &pos, &key, &hash)) {
    if (!is_constant_type(Py_TYPE(key)) && !PyType_Check(key) && !(PyTuple_Check(key) && is_python_constant(from_python(Ref::borrow(key)))))
      unsupported("a set of objects");
    of.emplace(key, from_python(Ref::borrow(key)));
    keep(Ref::borrow(key));
  }
  return make<SetVariable>(PyFrozenSet_Check(o) ? &PyFrozenSet_Type : &PySet_Type, Ref::steal(PySet_New(o)), std::move(of));
}

Variable* Translator::classify(PyObject* o, SourceId s) {
  const Known& k = known();
  PyTypeObject* t = Py_TYPE(o);
  auto sourced = [&](Variable* v) {
    v->source = s;
    v->born = 0;
    return v;
  };
  if (t == &PyLong_Type && view_.seen && sources()[s].kind != SourceKind::Const) {
    sym::Range range;
    int overflow = 0;
    int64_t value = PyLong_AsLongLongAndOverflow(o, &overflow);
    if (!overflow && view_.seen->integer(sources().print(s), value, anchored(s), view_.dynamic, &range)) {
      guards().type_is(s, t, line());
      Ref open = Ref::steal(tracer().lift_int(value, range));
      open_integers_.push_back(s);
      return sourced(make<SymVariable>(open.get()));
    }
  }
  if (is_constant_type(t)) {
    if (sources()[s].kind != SourceKind::Const) {
      if (t == &PyRange_Type) guards().range_is(s, o, line());
      else if (t == k.finfo || t == k.iinfo) guard_identity(s, o);
      else guards().equal(s, o, line());
    }
    return sourced(make<ConstantVariable>(o));
  }
  if (t == &PySlice_Type) {
    auto* p = reinterpret_cast<PySliceObject*>(o);
    guards().equal(s, o, line());
    return sourced(make<SliceVariable>(from_python(Ref::borrow(p->start)), from_python(Ref::borrow(p->stop)), from_python(Ref::borrow(p->step))));
  }
  if (t == k.sym_int || t == k.sym_float || t == k.sym_bool) unsupported("a symbolic number from outside");
  if (PyObject_TypeCheck(o, k.enum_) || PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o) || PyBytes_Check(o)) {
    guard_identity(s, o);
    return sourced(make<ConstantVariable>(o));
  }
  // Known by identity.
  if (PyType_Check(o) || PyModule_Check(o) || PyCFunction_Check(o) || t == &PyMethodDescr_Type || t == &PyWrapperDescr_Type || t == &PyClassMethodDescr_Type ||
      t == &PyGetSetDescr_Type || t == &PyMemberDescr_Type || PyType_IsSubtype(t, &PyProperty_Type) || t == &PyCode_Type || t == k.lru_cache ||
      torch_rule(o) != TorchRule::None || t == k.cached_property || t == &PyStaticMethod_Type || t == &PyClassMethod_Type) {
    auto [it, fresh] = global_objects_.try_emplace(o);
    guard_identity(s, o);
    if (fresh || !it->second) it->second = make<RealVariable>(o, s);
    return global_objects_[o];
  }
  // The same object through another path is the same variable, as long as the paths meet.
  if (auto it = by_object_.find(o); it != by_object_.end()) {
    if (!(anchored(s) && anchored(it->second->source))) guards().same_object(it->second->source, s, line());
    else guard_identity(s, o);
    return it->second;
  }
  Variable* made = nullptr;
  if (PyObject_TypeCheck(o, k.tensor)) {
    if (t != k.tensor && t != k.parameter) {
      if (tracer().is_fake(o)) unsupported(Reason::UnsupportedTensor, "a fake tensor from outside");
      Ref buffer = Ref::steal(PyObject_GetAttrString(k.torch, "nn"));
      buffer = Ref::steal(PyObject_GetAttrString(buffer.get(), "Buffer"));
      unsupported(Reason::UnsupportedTensor, std::string("a tensor of class ") + t->tp_name);
    }
    auto* tensor = make<TensorVariable>(o, s);
    if (view_.seen && !anchored(s)) {
      std::vector<DimMark> marks = marks_of(o);
      tensor->symbolic = view_.seen->tensor(sources().print(s), o, marks, view_.dynamic);
    }
    guards().tensor(s, o, tensor->symbolic, line());
    made = tensor;
  } else if (t == &PyFunction_Type) {
    auto* f = make<FunctionVariable>(o, s);
    if (anchored(s)) {
      guard_identity(s, o);
      f->anchored = true;
    } else {
      guards().type_is(s, t, line());
    }
    made = f;
  } else if (t == &PyMethod_Type) {
    guards().type_is(s, t, line());
    Variable* fn = wrap(PyMethod_GET_FUNCTION(o), sources().derived(SourceKind::MethodFunc, s));
    Variable* self = wrap(PyMethod_GET_SELF(o), sources().derived(SourceKind::MethodSelf, s));
    return sourced(make<BoundMethodVariable>(fn, self));
  } else if (t == &PyCell_Type) {
    made = make<CellVariable>(o, s);
  } else if (t == &PyDictProxy_Type) {
    // Read through to the mapping behind it, the first field of the object.
    guards().type_is(s, t, line());
    PyObject* origin = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(o) + sizeof(PyObject));
    return force(wrap(origin, sources().derived(SourceKind::MappingOrigin, s)));
  } else if (t == k.partial) {
    guards().type_is(s, t, line());
    Ref fn = Ref::steal(PyObject_GetAttrString(o, "func")), a = Ref::steal(PyObject_GetAttrString(o, "args")), kw = Ref::steal(PyObject_GetAttrString(o, "keywords"));
    auto* args = force(wrap(a.get(), sources().derived(SourceKind::PartialArgs, s)))->as<TupleVariable>();
    auto* keywords = force(wrap(kw.get(), sources().derived(SourceKind::PartialKeywords, s)))->as<DictVariable>();
    std::vector<std::pair<PyObject*, Variable*>> named;
    for (const auto& e : keywords->entries(*this)) named.emplace_back(keep(Ref::borrow(e.hash_key.get())), e.value);
    return sourced(make<PartialVariable>(wrap(fn.get(), sources().derived(SourceKind::PartialFunc, s)), args->elements, named));
  } else if (PyTuple_Check(o) && (t == &PyTuple_Type || t == k.size || is_structseq(t) || !(t->tp_dictoffset) )) {
    guards().type_is(s, t, line());
    guards().length(s, PyTuple_GET_SIZE(o), line());
    std::vector<Variable*> items;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) items.push_back(wrap(PyTuple_GET_ITEM(o, i), sources().tuple_item(s, i)));
    auto* made_tuple = make<TupleVariable>(std::move(items), t);
    made_tuple->real = Ref::borrow(o);
    return sourced(made_tuple);
  } else if (t == &PyList_Type) {
    guards().type_is(s, t, line());
    guards().length(s, PyList_GET_SIZE(o), line());
    std::vector<Variable*> items;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); ++i) items.push_back(wrap(PyList_GET_ITEM(o, i), sources().list_item(s, i)));
    made = sourced(make<ListVariable>(std::move(items)));
  } else if (t == &PyDict_Type || t == k.ordered_dict || t == k.default_dict) {
    if (sources()[s].kind != SourceKind::Const && sources()[s].kind != SourceKind::InstanceDict) guards().type_is(s, t, line());
    auto* d = make<DictVariable>(o, s, t);
    if (t == k.default_dict) {
      guard_identity(s, o);  // the factory has no path of its own
      Ref f = Ref::steal(PyObject_GetAttrString(o, "default_factory"));
      d->default_factory = from_python(f);
    }
    made = d;
  } else if (PyAnySet_CheckExact(o)) {
    guards().type_is(s, t, line());
    made = sourced(known_set(o, s));
  } else if (PyObject_TypeCheck(o, k.module)) {
    guard_identity(s, o);
    guards().type_is(s, t, line());  // __class__ can be set
    made = make<ModuleVariable>(o, s);
  } else if (is_opaque(t) && !PyDict_Check(o) && !PyList_Check(o) && !PyTuple_Check(o)) {
    guard_identity(s, o);
    return make<RealVariable>(o, s);
  } else {
    if (sources()[s].kind != SourceKind::Const) guards().type_is(s, t, line());
    auto* obj = make<ObjectVariable>(o, s);
    if (PyDict_Check(o)) {
      obj->base = make<DictVariable>(o, s, PyType_IsSubtype(t, k.ordered_dict) ? k.ordered_dict : &PyDict_Type);
    } else if (PyList_Check(o)) {
      guards().length(s, PyList_GET_SIZE(o), line());
      std::vector<Variable*> items;
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); ++i) items.push_back(wrap(PyList_GET_ITEM(o, i), sources().list_item(s, i)));
      obj->base = sourced(make<ListVariable>(std::move(items)));
    } else if (PyTuple_Check(o)) {
      guards().length(s, PyTuple_GET_SIZE(o), line());
      std::vector<Variable*> items;
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) items.push_back(wrap(PyTuple_GET_ITEM(o, i), sources().tuple_item(s, i)));
      obj->base = sourced(make<TupleVariable>(std::move(items)));
    } else if (PyAnySet_Check(o)) {
      obj->base = sourced(known_set(o, s));
    } else if (PyExceptionInstance_Check(o)) {
      PyObject* args = reinterpret_cast<PyBaseExceptionObject*>(o)->args;
      obj->base = force(wrap(args, sources().add(SourceKind::Slot, s, offsetof(PyBaseExceptionObject, args), intern("args"))));
    }
    made = obj;
  }
  by_object_[o] = made;
  return made;
}

// ---- protocols ----

Variable* Translator::getattr_or_null(Variable* v, PyObject* name) {
  v = force(v);
  try {
    Variable* r = v->getattr(*this, name);
    return r ? r : nullptr;
  } catch (PyRaise& e) {
    if (!is_instance(e.exception, PyExc_AttributeError)) throw;
    return nullptr;
  }
}

Variable* Translator::getattr(Variable* v, PyObject* name) {
  v = force(v);
  if (Variable* r = v->getattr(*this, name)) return r;
  PyObject* o = v->as_constant();
  std::string n = PyUnicode_AsUTF8(name);
  if (o && PyType_Check(o)) raise(PyExc_AttributeError, std::string("type object '") + reinterpret_cast<PyTypeObject*>(o)->tp_name + "' has no attribute '" + n + "'");
  if (o && PyModule_Check(o)) raise(PyExc_AttributeError, std::string("module '") + PyModule_GetName(o) + "' has no attribute '" + n + "'");
  const char* type_name = v->type()->tp_name;
  if (!(v->type()->tp_flags & Py_TPFLAGS_HEAPTYPE))
    if (const char* dot = strrchr(type_name, '.')) type_name = v->is(Kind::Tensor) ? dot + 1 : type_name;
  raise(PyExc_AttributeError, std::string("'") + type_name + "' object has no attribute '" + n + "'");
}

void Translator::setattr(Variable* v, PyObject* name, Variable* value) { force(v)->setattr(*this, name, value); }

Variable* Translator::call(Variable* callee, Args args, bool resumable) {
  if (++depth_ > 900) {
    depth_ = 0;
    unsupported("recursion deeper than 900 calls");
  }
  check_stack();
  struct Leave {
    int& d;
    ~Leave() { --d; }
  } leave{depth_};
  for (int i = 0;; ++i) {
    if (i > 900) unsupported("a call of a call of a call...");
    callee = force(callee);
    switch (callee->kind) {
      case Kind::Function: return inline_function(callee->as<FunctionVariable>(), args, resumable);
      case Kind::BoundMethod: {
        auto* m = callee->as<BoundMethodVariable>();
        args.pos.insert(args.pos.begin(), m->self);
        callee = m->function;
        continue;
      }
      case Kind::Partial:
        callee->as<PartialVariable>()->merge(args);
        callee = callee->as<PartialVariable>()->function;
        continue;
      case Kind::Module: callee = module_call_target(*this, callee->as<ObjectVariable>()); continue;
      case Kind::Object: {
        SourceId at;
        PyObject* f = lookup_on_type(callee->type(), intern("__call__"), &at);
        if (!f) raise(PyExc_TypeError, std::string("'") + callee->type()->tp_name + "' object is not callable");
        callee = bind_descriptor(f, at, callee, callee->type(), intern("__call__"));
        continue;
      }
      default: return callee->call(*this, args);
    }
  }
}

Variable* Translator::call_method(Variable* self, const char* name, std::vector<Variable*> pos) {
  return call(getattr(self, intern(name)), Args{std::move(pos), {}});
}

bool Translator::identical(Variable* a, Variable* b) {
  a = force(a);
  b = force(b);
  if (a == b) return true;
  PyObject *ra = real_of(a), *rb = real_of(b);
  if (!ra || !rb) return false;
  bool same = ra == rb;
  if (a->is(Kind::Constant) || b->is(Kind::Constant)) return same;
  if (a->source.valid() && b->source.valid()) {
    if (anchored(a->source) && anchored(b->source)) {
      guard_identity(a->source, ra);
      guard_identity(b->source, rb);
    } else if (same) {
      guards().same_object(a->source, b->source, line());
    } else {
      guards().distinct(a->source, b->source, line());
    }
  }
  return same;
}

Variable* Translator::getitem(Variable* v, Variable* key, bool) {
  v = force(v);
  return v->getitem(*this, force(key));
}

void Translator::setitem(Variable* v, Variable* key, Variable* value) { force(v)->setitem(*this, force(key), value); }
void Translator::delitem(Variable* v, Variable* key) { force(v)->delitem(*this, force(key)); }
bool Translator::contains(Variable* v, Variable* item) { return force(v)->contains(*this, force(item)); }
Variable* Translator::iter(Variable* v) { return force(v)->iter(*this); }
std::vector<Variable*> Translator::unpack(Variable* v) { return force(v)->items(*this); }

bool Translator::is_instance(Variable* v, PyObject* cls) {
  v = force(v);
  if (PyTuple_Check(cls)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cls); ++i)
      if (is_instance(v, PyTuple_GET_ITEM(cls, i))) return true;
    return false;
  }
  if (std::string_view(Py_TYPE(cls)->tp_name) == "types.UnionType") {
    Ref args = Ref::steal(PyObject_GetAttrString(cls, "__args__"));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.get()); ++i) {
      PyObject* c = PyTuple_GET_ITEM(args.get(), i);
      if (is_instance(v, c == Py_None ? reinterpret_cast<PyObject*>(Py_TYPE(Py_None)) : c)) return true;
    }
    return false;
  }
  if (!PyType_Check(cls)) raise(PyExc_TypeError, "isinstance() arg 2 must be a type, a tuple of types, or a union");
  if (PyType_IsSubtype(v->type(), reinterpret_cast<PyTypeObject*>(cls))) return true;
  if (PyObject* of = lookup_on_type(v->type(), intern("__class__"), nullptr); of != _PyType_Lookup(&PyBaseObject_Type, intern("__class__"))) {
    if (!v->is(Kind::Object)) unsupported("isinstance() of an object that says itself what its class is");
    PyObject* said = force(getattr(v, "__class__"))->as_constant();
    if (said && PyType_Check(said) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(said), reinterpret_cast<PyTypeObject*>(cls))) return true;
  }
  if (v->is(Kind::Real) && !PyType_Check(v->as_constant()) && v->type()->tp_getattro != PyObject_GenericGetAttr && !PyModule_Check(v->as_constant()))
    unsupported("isinstance() of " + v->describe());
  if (Py_TYPE(cls) == &PyType_Type) return false;
  // The class decides. Tensors and constants are asked as they are; for the rest an ABC looks at the class only.
  if (v->is(Kind::Tensor)) {
    auto* t = v->as<TensorVariable>();
    int r = PyObject_IsInstance(t->real ? t->real.get() : t->value(*this), cls);
    if (r < 0) raise_current();
    return r == 1;
  }
  if (PyObject* o = v->as_constant()) {
    int r = PyObject_IsInstance(o, cls);
    if (r < 0) raise_current();
    return r == 1;
  }
  PyObject* check = _PyType_Lookup(Py_TYPE(cls), intern("__instancecheck__"));
  static PyObject* plain = _PyType_Lookup(&PyType_Type, PyUnicode_InternFromString("__instancecheck__"));
  static PyObject* abc = _PyType_Lookup(known().abc_meta, PyUnicode_InternFromString("__instancecheck__"));
  static PyObject* parameter = _PyType_Lookup(Py_TYPE(known().parameter), PyUnicode_InternFromString("__instancecheck__"));
  if (check == plain || check == parameter) return false;
  if (PyObject_TypeCheck(cls, Py_TYPE(known().tensor)) && !PyType_IsSubtype(v->type(), known().tensor)) return false;
  if (check == abc || !check) {
    int r = PyObject_IsSubclass(reinterpret_cast<PyObject*>(v->type()), cls);
    if (r < 0) raise_current();
    return r == 1;
  }
  unsupported(std::string("isinstance with class ") + reinterpret_cast<PyTypeObject*>(cls)->tp_name + ", which decides by itself");
}

Variable* Translator::format(Variable* v, const std::string& spec, int conversion) {
  v = force(v);
  if (is_python_constant(v)) {
    Ref o = to_python(v);
    if (conversion == 1) o = Ref::steal(PyObject_Str(o.get()));
    else if (conversion == 2) o = Ref::steal(PyObject_Repr(o.get()));
    else if (conversion == 3) o = Ref::steal(PyObject_ASCII(o.get()));
    if (!o) raise_current();
    Ref s = Ref::steal(PyUnicode_FromStringAndSize(spec.data(), static_cast<Py_ssize_t>(spec.size())));
    Ref out = Ref::steal(PyObject_Format(o.get(), s.get()));
    if (!out) raise_current();
    return constant(out);
  }
  if (v->is(Kind::Object) || v->is(Kind::Real)) {
    if (v->is(Kind::Real)) {
      PyObject* o = v->as_constant();
      if (PyType_Check(o) || PyCallable_Check(o)) {
        Ref s = Ref::steal(conversion == 2 ? PyObject_Repr(o) : PyObject_Str(o));
        if (!s) raise_current();
        return constant(s);
      }
    } else {
      SourceId format_at;
      PyObject* own = conversion ? nullptr : lookup_on_type(v->type(), intern("__format__"), &format_at);
      if (own && PyFunction_Check(own))
        return force(call(bind_descriptor(own, format_at, v, v->type(), intern("__format__")), {string(spec)}));
      if (!conversion && !spec.empty()) unsupported("the text of " + v->describe());
      for (const char* m : {conversion == 2 ? "__repr__" : "__str__", "__repr__"}) {
        SourceId at;
        PyObject* f = lookup_on_type(v->type(), intern(m), &at);
        if (f && (PyFunction_Check(f) || v->as<ObjectVariable>()->is_exception())) {
          Variable* s = force(call(bind_descriptor(f, at, v, v->type(), intern(m)), std::vector<Variable*>{}));
          if (s->type() != &PyUnicode_Type) unsupported(std::string(m) + " that does not return a str");
          return format(s, spec, 0);
        }
      }
    }
  }
  unsupported("the text of " + v->describe());
}

// ---- calls into CPython and PyTorch ----

bool Translator::is_python_constant(Variable* v) {
  v = force(v);
  check_stack();
  if (v->is(Kind::Constant) || v->is(Kind::Sym)) return true;
  if (v->is(Kind::List) && v->type() != &PyList_Type) return false;
  if (v->is(Kind::Tuple) || v->is(Kind::List)) {
    for (Variable* e : static_cast<SequenceVariable*>(v)->elements)
      if (!is_python_constant(e)) return false;
    return true;
  }
  if (v->is(Kind::Dict)) {
    if (v->type() != &PyDict_Type) return false;
    for (const auto& e : v->as<DictVariable>()->entries(*this))
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
  if (v->is(Kind::Real)) {
    PyObject* o = v->as_constant();
    return PyType_Check(o) || PyCFunction_Check(o);
  }
  return false;
}

Ref Translator::to_python(Variable* v) {
  v = force(v);
  check_stack();
  auto closed = [&](Variable* key) {  // what is hashed has one value
    OpenSizes open(false);
    return to_python(key);
  };
  switch (v->kind) {
    case Kind::Constant: return v->as<ConstantVariable>()->value;
    case Kind::Sym:
      return OpenSizes::on() && v->type() == &PyLong_Type ? v->as<SymVariable>()->value : to_python(v->as<SymVariable>()->specialise(*this));
    case Kind::Tensor: return Ref::borrow(v->as<TensorVariable>()->value(*this));
    case Kind::Tuple: {
      auto* t = v->as<TupleVariable>();
      Ref out = Ref::steal(PyTuple_New(t->len(*this)));
      for (size_t i = 0; i < t->elements.size(); ++i) PyTuple_SET_ITEM(out.get(), static_cast<Py_ssize_t>(i), to_python(t->elements[i]).release());
      if (t->cls == &PyTuple_Type) return out;
      if (t->cls == known().size || is_structseq(t->cls)) {
        out = Ref::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(t->cls), out.get()));
      } else {
        Ref args = Ref::steal(PyTuple_Pack(1, out.get()));
        out = Ref::steal(PyTuple_Type.tp_new(t->cls, args.get(), nullptr));
      }
      if (!out) raise_current();
      return out;
    }
    case Kind::List: {
      auto* l = v->as<ListVariable>();
      Ref out = Ref::steal(PyList_New(l->len(*this)));
      for (size_t i = 0; i < l->elements.size(); ++i) PyList_SET_ITEM(out.get(), static_cast<Py_ssize_t>(i), to_python(l->elements[i]).release());
      return out;
    }
    case Kind::Dict: {
      Ref out = Ref::steal(PyDict_New());
      for (const auto& e : v->as<DictVariable>()->entries(*this)) {
        Ref key = closed(e.key), value = to_python(e.value);
        if (PyDict_SetItem(out.get(), key.get(), value.get()) < 0) raise_current();
      }
      return out;
    }
    case Kind::Set: {
      Ref out = Ref::steal(v->type() == &PyFrozenSet_Type ? PyFrozenSet_New(nullptr) : PySet_New(nullptr));
      for (Variable* e : v->as<SetVariable>()->elements())
        if (PySet_Add(out.get(), closed(e).get()) < 0) raise_current();
      return out;
    }
    case Kind::Slice: {
      auto* s = v->as<SliceVariable>();
      Ref a = to_python(s->parts[0]), b = to_python(s->parts[1]), c = to_python(s->parts[2]);
      return Ref::steal(PySlice_New(a.get(), b.get(), c.get()));
    }
    case Kind::Real: return Ref::borrow(v->as_constant());
    case Kind::Iterator:
    case Kind::Generator:
    case Kind::DictView: {
      Variable* all = [&] {
        OpenSizes open(false);  // iterating may run code of the user's
        return list(v->items(*this));
      }();
      return to_python(all);
    }
    case Kind::Host: return v->as<HostVariable>()->object;
    default:
      if (hosting_) return callback(v);
      unsupported(Reason::UnknownFunction, v->describe() + " given to a C function");
  }
}

bool Translator::has_tensor(const Args& args) {
  std::function<bool(Variable*)> in = [&](Variable* v) -> bool {
    v = force(v);
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
    out.owned.push_back(tr.to_python(v));
    out.pos.push_back(out.owned.back().get());
  }
  if (!args.kw.empty()) {
    out.kw = Ref::steal(PyDict_New());
    for (auto& [k, v] : args.kw) PyDict_SetItem(out.kw.get(), k, tr.to_python(v).get());
  }
  return out;
}

graph::Location Translator::location() const {
  UserLine at = line();
  graph::Location loc;
  if (at.code) {
    loc.file = PyUnicode_AsUTF8(at.code->co_filename);
    loc.function = PyUnicode_AsUTF8(at.code->co_qualname);
    loc.line = at.line;
  }
  return loc;
}

Variable* Translator::call_torch(PyObject* fn, const Args& args) {
  RealArgs real = convert(*this, args, /*open=*/true);
  dirty_ = true;
  for (auto& [name, v] : args.kw)
    if (PyUnicode_CompareWithASCIIString(name, "requires_grad") == 0 && truth(v)) makes_leaves = true;
  Ref result = Ref::steal(tracer().call(fn, real.pos.data(), real.pos.size(), real.kw.get(), location()));
  ++segment_.num_calls;
  if (!result) raise_current();
  return from_python(std::move(result));
}

Variable* Translator::query_torch(PyObject* fn, const Args& args) {
  RealArgs real = convert(*this, args, /*open=*/true);
  Ref result = Ref::steal(PyObject_VectorcallDict(fn, real.pos.data(), real.pos.size(), real.kw.get()));
  if (!result) raise_current();
  return from_python(std::move(result));
}

Variable* Translator::call_pure(PyObject* fn, const Args& args) {
  for (Variable* v : args.pos)
    if (!is_python_constant(v)) unsupported(Reason::UnknownFunction, "a C function on " + force(v)->describe());
  for (auto& [k, v] : args.kw)
    if (!is_python_constant(v)) unsupported(Reason::UnknownFunction, "a C function on " + force(v)->describe());
  RealArgs real = convert(*this, args, /*open=*/false);
  Ref result = Ref::steal(PyObject_VectorcallDict(fn, real.pos.data(), real.pos.size(), real.kw.get()));
  if (!result) raise_current();
  // What can change, or is used up, would be shared by all calls of the compiled code.
  PyObject* o = result.get();
  bool known_kind = is_constant_type(Py_TYPE(o)) || PyObject_TypeCheck(o, known().enum_) || PyType_Check(o) || PyTuple_Check(o) || PyList_CheckExact(o) ||
                    PyDict_CheckExact(o) || PyAnySet_CheckExact(o) || PySlice_Check(o) || PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o);
  if (!known_kind && (Py_TYPE(o)->tp_iternext || !Py_TYPE(o)->tp_hash || Py_TYPE(o)->tp_hash == PyObject_HashNotImplemented))
    unsupported(Reason::UnknownFunction, std::string("an object of class ") + Py_TYPE(o)->tp_name + " from a C function");
  return from_python(std::move(result));
}

Variable* Translator::specialised(Variable* v) {
  v = force(v);
  if (v->is(Kind::Sym)) return v->as<SymVariable>()->specialise(*this);
  if (!v->is(Kind::Tuple) && !v->is(Kind::List)) return v;
  std::vector<Variable*> items;
  bool same = true;
  for (Variable* e : static_cast<SequenceVariable*>(v)->elements) {
    items.push_back(specialised(e));
    same = same && items.back() == force(e);
  }
  if (same) return v;
  return v->is(Kind::List) ? static_cast<Variable*>(list(std::move(items))) : make<TupleVariable>(std::move(items), v->type());
}

Variable* Translator::polyfill(const char* name) {
  PyObject* m = known().polyfills;
  Ref f = Ref::steal(m ? PyObject_GetAttrString(m, name) : nullptr);
  if (!f) {
    PyErr_Clear();
    unsupported(std::string("no polyfill ") + name);
  }
  return global_object(f.get());
}

// ---- raising ----

void Translator::raise(Variable* exception) {
  exception = force(exception);
  if (PyObject* cls = exception->as_constant(); cls && PyExceptionClass_Check(cls)) exception = force(call(exception, std::vector<Variable*>{}));
  chain_context(exception, being_handled());
  throw PyRaise{exception, ordinal_};
}

void Translator::raise(PyObject* type, const std::string& message) {
  auto* e = make<ObjectVariable>(reinterpret_cast<PyTypeObject*>(type));
  e->base = tuple({string(message)});
  e->raised_here = true;
  chain_context(e, being_handled());
  throw PyRaise{e, ordinal_};
}

Variable* Translator::being_handled() {
  auto some = [&](Variable* v) { return v && !is_none(force(v)) ? force(v) : nullptr; };
  Variable* v = some(handled);
  for (Frame* f = frame_; !v && f; f = f->parent)
    if (f->is_generator) v = some(f->around);
  return v;
}

Variable* Translator::handled_at_start() {
  for (Frame* f = frame_; f; f = f->parent)
    if (f->is_generator) return none();
  if (!handled_before_) handled_before_ = wrap(handled_exception(), sources().handled());
  return handled_before_;
}

void Translator::chain_context(Variable* exception, Variable* context) {
  if (!context || !exception->is(Kind::Object)) return;
  context = force(context);
  if (context == exception || !context->is(Kind::Object)) return;
  auto* name = intern("__context__");
  // No cycles: where the chain leads back to the exception it is cut.
  Variable* at = context;
  for (int i = 0; i < 1000; ++i) {
    Variable* next = force(at->as<ObjectVariable>()->generic_getattr(*this, name));
    if (next == exception) {
      at->as<ObjectVariable>()->set_field(*this, name, none());
      break;
    }
    if (!next->is(Kind::Object)) break;
    at = next;
  }
  exception->as<ObjectVariable>()->set_field(*this, name, context);
}

void Translator::raise_natively(Variable* exception, const char* why) {
  auto it = origins_.find(exception);
  if (it == origins_.end() || it->second == 0) unsupported(why);
  throw Restart{it->second, {Reason::RaisedException, why}};
}

bool stack_is_low() {
  thread_local char* limit = [] {
    pthread_attr_t attr;
    void* low = nullptr;
    size_t size = 0;
    if (pthread_getattr_np(pthread_self(), &attr) != 0) return static_cast<char*>(nullptr);
    pthread_attr_getstack(&attr, &low, &size);
    pthread_attr_destroy(&attr);
    return static_cast<char*>(low) + std::min<size_t>(size / 4, 1 << 20);
  }();
  char here;
  return &here < limit;
}

void Translator::raise_current() {
  PyObject *type, *value, *trace;
  rethrow_from_key();
  PyErr_Fetch(&type, &value, &trace);
  if (!type) throw InternalError("a failed call left no exception");
  PyErr_NormalizeException(&type, &value, &trace);
  Ref t = Ref::steal(type), v = Ref::steal(value), tb = Ref::steal(trace);
  Reason reason;
  std::string detail;
  if (trace::is_graph_break_exception(value, &reason, &detail)) throw Unsupported(reason, detail);
  Variable* e = from_python(v);
  if (e->is(Kind::Object)) {
    e->as<ObjectVariable>()->raised_here = true;
    e->as<ObjectVariable>()->like = v;
    chain_context(e, being_handled());
  }
  throw PyRaise{e, ordinal_};
}

void Translator::unsupported(Reason r, const std::string& detail) { throw Unsupported(r, detail); }

// ---- state ----

void Translator::modified(Variable* v) {
  if (v->source.valid() || v->born < backward_since) no_effect_of_backward("the backward of an autograd.Function changes an object");
  if (!v->source.valid()) return;
  for (Variable* m : modified_)
    if (m == v) return;
  modified_.push_back(v);
}

DictVariable* Translator::globals_dict(const Frame& f) {
  return force(wrap(f.globals, f.globals_source))->as<DictVariable>();
}

void Translator::lifted(TensorVariable* v) { lifted_.push_back(v); }

void Translator::set_state(PyObject* get, std::vector<Ref> get_args, PyObject* set, std::vector<Ref> set_args) {
  auto invoke = [&](PyObject* f, const std::vector<Ref>& args) {
    std::vector<PyObject*> raw;
    for (const Ref& a : args) raw.push_back(a.get());
    Ref r = Ref::steal(PyObject_Vectorcall(f, raw.data(), raw.size(), nullptr));
    if (!r) raise_current();
    return r;
  };
  mutate();
  Ref before = invoke(get, get_args);
  invoke(set, set_args);
  for (State& s : states_)
    if (s.get == get && s.get_args.size() == get_args.size() &&
        (get_args.empty() || PyObject_RichCompareBool(s.get_args[0].get(), get_args[0].get(), Py_EQ) == 1)) {
      s.set_args = std::move(set_args);
      return;
    }
  states_.push_back({get, std::move(get_args), set, std::move(set_args), before});
}

void Translator::defer_call(Variable* callee, Args args) {
  no_effect_of_backward("the backward of an autograd.Function has an effect");
  mutate();
  deferred_.push_back({callee, std::move(args)});
}

UserLine Translator::line() const {
  for (Frame* f = frame_; f; f = f->parent)
    if (f->code && f->ip < static_cast<int>(f->code->instructions.size())) return f->line();
  return {};
}

}  // namespace braze::capture
