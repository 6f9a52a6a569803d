// From Python objects to variables: what was there before the capture, and what pure functions gave while capturing.
#include <cstddef>
#include <unordered_map>

#include "capture/guards/array_memory.h"
#include "capture/guards/content.h"
#include "capture/eval/library_objects.h"
#include "capture/builtins/builtins.h"
#include "capture/cpython/set_table.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/random_generator.h"

namespace braze::capture {
namespace {

// Implemented in C: an instance holds nothing that we could follow.
bool is_opaque(PyTypeObject* t) {
  static const destructor python_defined = library().module->tp_dealloc;
  if (t == library().simple_namespace) return false;
  return t->tp_dealloc != python_defined && t != &PyBaseObject_Type && !PyType_IsSubtype(t, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
}

}  // namespace

Variable* Translator::constant(PyObject* o, Ground ground) {
  if (o == Py_None) return none_;
  if (o == Py_True) return true_;
  if (o == Py_False) return false_;
  return make<ConstantVariable>(o, ground);
}

Variable* Translator::integer(int64_t n, Ground ground) {
  auto [it, fresh] = integers_.try_emplace(n);
  if (fresh) it->second = make<ConstantVariable>(Ref::steal(PyLong_FromLongLong(n)).get(), ground);
  return it->second;
}

Variable* Translator::string(const std::string& s, Ground ground) {
  return constant(Ref::steal(PyUnicode_FromStringAndSize(s.data(), static_cast<Py_ssize_t>(s.size()))), ground);
}

TupleVariable* Translator::tuple(std::vector<Variable*> items) { return make<TupleVariable>(std::move(items)); }
Variable* Translator::make_tuple(PyTypeObject* cls, std::vector<Variable*> items) {
  if (is_plain_tuple_class(*this, cls)) return make<TupleVariable>(std::move(items), cls);
  auto* o = make<ObjectVariable>(cls);
  o->base = tuple(std::move(items));
  return o;
}
ListVariable* Translator::list(std::vector<Variable*> items) { return make<ListVariable>(std::move(items)); }
DictVariable* Translator::dict() { return make<DictVariable>(); }

const char* Translator::intern_text(const std::string& s) { return PyUnicode_AsUTF8(intern(s.c_str())); }

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

Variable* Translator::global_object(PyObject* o, Ground ground) {
  if (is_constant_type(Py_TYPE(o)) || PyObject_TypeCheck(o, library().enum_)) return constant(o, ground);
  auto [it, fresh] = global_objects_.try_emplace(o);
  if (fresh) {
    SourceId s = sources().constant(o);
    it->second = force(wrap(o, s));
  }
  return it->second;
}

Variable* Translator::from_python(Ref object, Ground ground) {
  PyObject* o = object.get();
  PyTypeObject* t = Py_TYPE(o);
  if (o == Py_None || o == Py_True || o == Py_False) return constant(o, ground);
  if (!stand_ins_.empty())
    if (auto it = stand_ins_.find(o); it != stand_ins_.end()) return it->second;
  if (is_constant_type(t) || PyObject_TypeCheck(o, library().enum_)) return constant(o, ground);
  if (PyObject_TypeCheck(o, library().tensor)) {
    auto [it, fresh] = by_object_.try_emplace(o);
    if (fresh) {
      if (!tracer().is_fake(o)) {
        // Made outside of the recorder's sight: it becomes a constant of the graph.
        PyObject* f = tracer().lift(o, graph::InputKind::Constant, "constant");
        if (!f) raise_current();
        auto* tensor = make<TensorVariable>(Ref::steal(f).get());
        by_object_[o] = by_object_[f] = tensor;
        keep(object);
        if (t != library().tensor && t != library().parameter) set_tensor_class(tensor, f, t);
        return tensor;
      } else {
        auto* tensor = make<TensorVariable>(o);
        it->second = tensor;
        tensor->inference = inference;
        keep(object);
        if (t != library().tensor && t != library().parameter && t != class_behind(t)) tensor->cls = class_behind(t);
        else if (t != library().tensor && t != library().parameter) set_tensor_class(tensor, o, t);
        return tensor;
      }
    }
    return it->second;
  }
  const LibraryObjects& k = library();
  if (t == k.sym_float) return make<SymVariable>(o)->specialise(*this);  // computed from the sizes of this call
  if (t == k.sym_int || t == k.sym_bool) return make<SymVariable>(o);
  if (PySlice_Check(o)) {
    auto* s = reinterpret_cast<PySliceObject*>(o);
    return make<SliceVariable>(from_python(Ref::borrow(s->start), ground), from_python(Ref::borrow(s->stop), ground), from_python(Ref::borrow(s->step), ground));
  }
  if (PyTuple_Check(o)) {
    std::vector<Variable*> items;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i) items.push_back(from_python(Ref::borrow(PyTuple_GET_ITEM(o, i)), ground));
    return make<TupleVariable>(std::move(items), t);
  }
  if (PyList_CheckExact(o)) {
    std::vector<Variable*> items;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); ++i) items.push_back(from_python(Ref::borrow(PyList_GET_ITEM(o, i)), ground));
    return list(std::move(items));
  }
  if (PyDict_CheckExact(o)) {
    auto* d = dict();
    PyObject *key, *value;
    Py_ssize_t pos = 0;
    while (PyDict_Next(o, &pos, &key, &value)) d->set(*this, from_python(Ref::borrow(key), ground), from_python(Ref::borrow(value), ground));
    return d;
  }
  if (PyAnySet_CheckExact(o)) {
    std::vector<Variable*> elements;
    Ref it = Ref::steal(PyObject_GetIter(o));
    while (Ref e = Ref::steal(PyIter_Next(it.get()))) elements.push_back(from_python(e, ground));
    return make<SetVariable>(*this, t, o, elements);
  }
  if (PyExceptionInstance_Check(o)) {
    auto* e = make<ObjectVariable>(t);
    Ref args = Ref::steal(native::attr(Ground::made(), o, "args"));
    e->base = args ? from_python(args, ground) : tuple({});
    return e;
  }
  bool fixed = PyType_Check(o) || PyModule_Check(o) || PyCFunction_Check(o) || t == &PyMethodDescr_Type || t == &PyWrapperDescr_Type;
  fixed |= torch_rule(o) == TorchRule::Call && !(PyFunction_Check(o) && PyFunction_GET_CLOSURE(o));
  if (hosting_ && !fixed) return host_object(object);
  return global_object(o, ground);
}

bool Translator::anchored(SourceId s) {
  for (SourceId at = s; at.valid(); at = sources()[at].base) {
    if (is_fleeting(sources()[at].kind) && !identities_.count(at.index)) return false;  // nothing is to hold it
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
      lazy->forced = force(call(global_object(lazy->function, Ground::pure(v)), {left, right}));
    } else {
      lazy->forced = constant(lazy->object, Ground::pure(left, right));
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
    // Objects that are told apart by identity are members as such.
    PyTypeObject* t = Py_TYPE(key);
    bool by_identity = (t->tp_hash == PyBaseObject_Type.tp_hash && t->tp_richcompare == PyBaseObject_Type.tp_richcompare && !PyObject_TypeCheck(key, library().tensor)) || PyCFunction_Check(key);
    if (by_identity) {
      of.emplace(key, global_object(key, Ground::guarded(s)));
      keep(Ref::borrow(key));
      continue;
    }
    if (!is_constant_type(t) && !PyType_Check(key) && !(PyTuple_Check(key) && is_python_constant(from_python(Ref::borrow(key), Ground::guarded(s)))))
      unsupported("a set of objects");
    of.emplace(key, from_python(Ref::borrow(key), Ground::guarded(s)));
    keep(Ref::borrow(key));
  }
  return make<SetVariable>(PyFrozenSet_Check(o) ? &PyFrozenSet_Type : &PySet_Type, set_like(&PySet_Type, o), std::move(of));
}

Variable* Translator::classify(PyObject* o, SourceId s) {
  const LibraryObjects& k = library();
  PyTypeObject* t = Py_TYPE(o);
  guard_mro(t);
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
    return sourced(make<ConstantVariable>(o, Ground::guarded(s)));
  }
  if (t == &PySlice_Type) {
    auto* p = reinterpret_cast<PySliceObject*>(o);
    guards().equal(s, o, line());
    return sourced(make<SliceVariable>(from_python(Ref::borrow(p->start), Ground::guarded(s)), from_python(Ref::borrow(p->stop), Ground::guarded(s)), from_python(Ref::borrow(p->step), Ground::guarded(s))));
  }
  if (t == k.sym_int || t == k.sym_float || t == k.sym_bool) unsupported("a symbolic number from outside");
  if (PyObject_TypeCheck(o, k.enum_) || PyLong_Check(o) || PyFloat_Check(o) || PyUnicode_Check(o) || PyBytes_Check(o)) {
    guard_identity(s, o);
    return sourced(make<ConstantVariable>(o, Ground::guarded(s)));
  }
  // LibraryObjects by identity.
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
    if (it->second->is(Kind::Cell) && it->second->as<CellVariable>()->real.get() != o) return it->second;  // of a class made here
    if (it->second->source.valid()) guards().same_object(it->second->source, s, line());
    else guard_identity(s, o);
    return it->second;
  }
  Variable* made = nullptr;
  if (PyObject_TypeCheck(o, k.tensor)) {
    if (t != k.tensor && t != k.parameter) {
      if (tracer().is_fake(o)) unsupported(Reason::UnsupportedTensor, "a fake tensor from outside");
      if (const char* why = refuse_tensor_class(t)) unsupported(Reason::UnsupportedTensor, std::string("a tensor of class ") + t->tp_name + ": " + why);
      // What the class does not define, it may define later.
      for (PyTypeObject* c = t; c && c != k.tensor && c != k.parameter; c = c->tp_base) guards().dict_keys(sources().constant(type_dict(c)), type_dict(c), line());
      torch_function(t);
      subclasses_ = true;
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
    auto* method = make<BoundMethodVariable>(fn, self);
    method->real = Ref::borrow(o);
    made = sourced(method);
  } else if (t == &PyCell_Type) {
    made = make<CellVariable>(o, s);
  } else if (t == &PyDictProxy_Type) {
    // Read through to the mapping behind it, the first field of the object.
    guards().type_is(s, t, line());
    PyObject* origin = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(o) + sizeof(PyObject));
    made = sourced(make<MappingProxyVariable>(force(wrap(origin, sources().derived(SourceKind::MappingOrigin, s)))));
  } else if (t == k.partial) {
    guards().type_is(s, t, line());
    Ref fn = Ref::steal(native::attr(Ground::guarded(s), o, "func")), a = Ref::steal(native::attr(Ground::guarded(s), o, "args")), kw = Ref::steal(native::attr(Ground::guarded(s), o, "keywords"));
    auto* args = force(wrap(a.get(), sources().derived(SourceKind::PartialArgs, s)))->as<TupleVariable>();
    auto* keywords = force(wrap(kw.get(), sources().derived(SourceKind::PartialKeywords, s)))->as<DictVariable>();
    auto* made_partial = make<PartialVariable>(wrap(fn.get(), sources().derived(SourceKind::PartialFunc, s)), args, keywords);
    made_partial->real = Ref::borrow(o);
    made = sourced(made_partial);
  } else if (PyTuple_Check(o) && is_plain_tuple_class(*this, t)) {
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
    made->as<ListVariable>()->real = Ref::borrow(o);
  } else if (t == k.deque) {
    guards().type_is(s, t, line());
    PyObject* content = keep(Ref::borrow(content_of(o)));  // maxlen, then the items
    SourceId at = sources().derived(SourceKind::Content, s);
    guards().length(at, PyTuple_GET_SIZE(content), line());
    PyObject* maxlen = PyTuple_GET_ITEM(content, 0);
    guards().equal(sources().tuple_item(at, 0), maxlen, line());
    std::vector<Variable*> items;
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(content); ++i) items.push_back(wrap(PyTuple_GET_ITEM(content, i), sources().tuple_item(at, i)));
    auto* d = make<ListVariable>(std::move(items), t);
    d->real = Ref::borrow(o);
    d->maxlen = maxlen == Py_None ? -1 : PyLong_AsLongLong(maxlen);
    made = sourced(d);
  } else if (t == &PyDict_Type || t == k.ordered_dict || t == k.default_dict) {
    if (sources()[s].kind != SourceKind::Const && sources()[s].kind != SourceKind::InstanceDict) guards().type_is(s, t, line());
    auto* d = make<DictVariable>(o, s, t);
    if (t == k.default_dict) {
      // The one field that collections.defaultdict adds to a dict.
      Ref f = Ref::steal(native::attr(Ground::guarded(s), o, "default_factory"));
      d->default_factory = wrap(f.get(), sources().add(SourceKind::Slot, s, sizeof(PyDictObject), intern("default_factory")));
    }
    made = d;
  } else if (PyAnySet_CheckExact(o)) {
    guards().type_is(s, t, line());
    made = sourced(known_set(o, s));
  } else if (PyObject_TypeCheck(o, k.module)) {
    guard_identity(s, o);
    guards().type_is(s, t, line());  // __class__ can be set
    made = make<ModuleVariable>(o, s);
  } else if (Variable* array = t == array_type() ? wrap_array(*this, o, s) : nullptr) {
    made = array;
  } else if (Variable* generator = t == random_generator_type() ? wrap_random_generator(*this, o, s) : nullptr) {
    made = generator;
  } else if (is_opaque(t) && !PyDict_Check(o) && !PyList_Check(o) && !PyTuple_Check(o)) {
    // Objects of the call's own, like iterators, files and buffers, are not kept alive.
    bool weak = !anchored(s) && PyType_SUPPORTS_WEAKREFS(t) && (t->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) && !PyCallable_Check(o);
    if (weak) guards().weak_identity(s, o, line());
    else guard_identity(s, o);
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

}  // namespace braze::capture
