// Attribute lookup by the rules of object.__getattribute__ and type.__getattribute__, guarded at each step that
// mattered.
#include <cstddef>

#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {

bool is_in_c(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  return o == Py_None || t == &PyWrapperDescr_Type || t == &PyMethodDescr_Type || t == &PyClassMethodDescr_Type ||
         t == &PyGetSetDescr_Type || t == &PyMemberDescr_Type || PyCFunction_Check(o);
}

Variable* Attributes::written_on_type(PyTypeObject* type, PyObject* name) {
  if (writes_.empty() || !type->tp_mro) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* t = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    for (const Write& w : writes_)
      if (w.type == t && PyUnicode_Compare(w.name, name) == 0) return w.value;
    bool fixed = is_fixed_type(t) || tr_.is_made_class(t);
    SourceId at = fixed ? SourceId() : tr_.sources().dict_item(tr_.sources().constant(type_dict(t)), name);
    if (native::item(fixed ? Ground::fixed() : Ground::guarded(at), type_dict(t), name)) return nullptr;
    // What was written on a base is seen as long as no class before it has one of its own.
    if (!fixed) tr_.guards().absent(at, tr_.line());
  }
  return nullptr;
}

void Attributes::write_on_type(PyTypeObject* type, PyObject* name, Variable* value) {
  if (shown_.count(type)) tr_.unsupported("a class that changes after its dict was asked for");
  tr_.effects.no_effect("changes a class");
  tr_.mutate();
  tr_.keep(Ref::borrow(name));
  for (Write& w : writes_)
    if (w.type == type && PyUnicode_Compare(w.name, name) == 0) {
      w.value = value;
      return;
    }
  writes_.push_back({type, name, value});
}

void Attributes::guard_bases(PyTypeObject* type) {
  if (is_fixed_type(type) || tr_.is_made_class(type) || !type->tp_mro) return;
  auto [it, fresh] = guarded_mros_.try_emplace(type, tr_.guards().size());
  if (!fresh && it->second < tr_.guards().size())
    return;  // else a part of the capture was rolled back, and its guards with it
  it->second = tr_.guards().size();
  SourceId mro = tr_.sources().add(SourceKind::Slot, tr_.sources().constant(reinterpret_cast<PyObject*>(type)),
                                   offsetof(PyTypeObject, tp_mro), tr_.intern("__mro__"));
  tr_.guards().length(mro, PyTuple_GET_SIZE(type->tp_mro), tr_.line());
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(type->tp_mro); ++i)
    if (PyObject* base = PyTuple_GET_ITEM(type->tp_mro, i); base != reinterpret_cast<PyObject*>(&PyBaseObject_Type))
      tr_.guard_identity(tr_.sources().tuple_item(mro, i), base);
}

PyObject* Attributes::lookup_on_type(PyTypeObject* type, PyObject* name, SourceId* source) {
  if (!writes_.empty() && written_on_type(type, name))
    tr_.unsupported(std::string("attribute '") + PyUnicode_AsUTF8(name) + "' of class " + type->tp_name +
                    ", which the code has set,");
  if (is_fixed_type(type)) {
    if (source) *source = {};
    return native::type_attr(Ground::fixed(), type, name);
  }
  SourceId at = tr_.sources().type_attr(tr_.sources().constant(reinterpret_cast<PyObject*>(type)), name);
  if (source) *source = at;
  PyObject* found = native::type_attr(Ground::guarded(at), type, name);
  // That the object is of this class is guarded where the object was met.
  if (!found)
    tr_.guards().absent(at, tr_.line());
  else if (!source || is_in_c(found))
    tr_.guard_identity(at, found);
  else
    tr_.guards().exists(at, tr_.line());
  if (PyTypeObject* of = found ? Py_TYPE(found) : nullptr; of && !is_fixed_type(of)) {
    // An instance of the program's class is a descriptor if that class says so.
    for (const char* method : {"__get__", "__set__", "__delete__"}) {
      SourceId said =
          tr_.sources().type_attr(tr_.sources().constant(reinterpret_cast<PyObject*>(of)), tr_.intern(method));
      if (native::type_attr(Ground::guarded(said), of, tr_.intern(method)))
        tr_.guards().exists(said, tr_.line());
      else
        tr_.guards().absent(said, tr_.line());
    }
  }
  return found;
}

void Attributes::tensor_operator(const std::string& method, std::initializer_list<Variable*> operands) {
  auto of = [&](PyTypeObject* type) {
    SourceId at;
    PyObject* found = lookup_on_type(type, tr_.intern(method.c_str()), &at);
    if (!found) return;
    if (PyFunction_Check(found) && !of_library(found))
      tr_.unsupported("method " + method + " of class " + type->tp_name + ", which the program replaced");
    tr_.guard_identity(at, found);
  };
  of(library().tensor);
  for (Variable* v : operands)
    if (v->is(Kind::Tensor) && v->type() != library().tensor) of(v->type());
}

const TypeInfo& Attributes::type_info(PyTypeObject* type) {
  auto [it, fresh] = types_.try_emplace(type);
  if (fresh) {
    TypeInfo& info = it->second;
    SourceId at;
    PyObject* get = lookup_on_type(type, tr_.intern("__getattribute__"), &at);
    if (get && at.valid()) tr_.guard_identity(at, get);
    // Classes in C name the generic function themselves.
    info.generic =
        get && Py_TYPE(get) == &PyWrapperDescr_Type &&
        reinterpret_cast<PyWrapperDescrObject*>(get)->d_wrapped == reinterpret_cast<void*>(PyObject_GenericGetAttr);
    if (!info.generic) info.getattribute = get;
    PyObject* hook = lookup_on_type(type, tr_.intern("__getattr__"), &at);
    if (hook && at.valid()) tr_.guard_identity(at, hook);
    info.getattr = hook;
  }
  return it->second;
}

Variable* Attributes::special_method(Variable* self, const char* name) {
  return special_method(self, tr_.intern(name));
}
Variable* Attributes::special_method(Variable* self, PyObject* name) {
  SourceId at;
  PyObject* found = lookup_on_type(self->type(), name, &at);
  if (!found || found == Py_None) return nullptr;
  if (at.valid()) return tr_.force(tr_.wrap(found, at));
  return tr_.global_object(found, Ground::pure(self));
}

Variable* Attributes::bind_descriptor(PyObject* descr, SourceId at, Variable* self, PyTypeObject* type,
                                      PyObject* name) {
  PyTypeObject* d = Py_TYPE(descr);
  auto value = [&]() -> Variable* {
    return at.valid() ? tr_.wrap(descr, at) : tr_.global_object(descr, Ground::pure(self));
  };
  if (d == &PyFunction_Type) return tr_.make<BoundMethodVariable>(tr_.force(value()), self);
  if (d == &PyMethodDescr_Type || d == &PyWrapperDescr_Type) {
    if (at.valid()) tr_.guard_identity(at, descr);
    return tr_.make<BuiltinMethodVariable>(self, descr, reinterpret_cast<PyDescrObject*>(descr)->d_type, name);
  }
  if (d == &PyStaticMethod_Type) {
    Ref fn = Ref::steal(native::attr(Ground::fixed(), descr, "__func__"));
    if (!at.valid()) return tr_.global_object(fn.get(), Ground::pure(self));
    tr_.guards().type_is(at, d, tr_.line());
    return tr_.wrap(fn.get(), tr_.sources().derived(SourceKind::StaticTarget, at));
  }
  if (d == &PyClassMethod_Type) {
    Ref fn = Ref::steal(native::attr(Ground::fixed(), descr, "__func__"));
    PyObject* through = self->as_constant();
    bool of_class =
        through && PyType_Check(through) && !PyType_IsSubtype(type, &PyType_Type);  // one of a metaclass binds to that
    Variable* cls = of_class ? self : tr_.global_object(reinterpret_cast<PyObject*>(type), Ground::pure(self));
#if PY_VERSION_HEX < 0x030D0000
    if (PyType_IsSubtype(Py_TYPE(fn.get()), &PyProperty_Type)) {  // read through the class
      Ref get = Ref::steal(native::attr(Ground::fixed(), fn.get(), "fget"));
      if (at.valid()) tr_.guard_identity(at, descr);
      if (get && PyFunction_Check(get.get())) return tr_.call(tr_.global_object(get.get(), Ground::pure(self)), {cls});
      PyErr_Clear();
    }
#endif
    if (!PyFunction_Check(fn.get()) && Py_TYPE(fn.get())->tp_descr_get && !PyCFunction_Check(fn.get()))
      tr_.unsupported("a class method of a descriptor");
    Variable* f;
    if (at.valid()) {
      tr_.guards().type_is(at, d, tr_.line());
      f = tr_.wrap(fn.get(), tr_.sources().derived(SourceKind::StaticTarget, at));
    } else {
      f = tr_.global_object(fn.get(), Ground::pure(self));
    }
    return tr_.make<BoundMethodVariable>(tr_.force(f), cls);
  }
  if (d == &PyClassMethodDescr_Type) {
    if (at.valid()) tr_.guard_identity(at, descr);
    Variable* cls = tr_.global_object(reinterpret_cast<PyObject*>(type), Ground::pure(self));
    return tr_.make<BuiltinMethodVariable>(cls, descr, reinterpret_cast<PyDescrObject*>(descr)->d_type, name);
  }
  if (PyType_IsSubtype(d, &PyProperty_Type) && d->tp_descr_get == PyProperty_Type.tp_descr_get) {
    Ref fget = Ref::steal(native::attr(Ground::guarded(at), descr, "fget"));
    if (!fget || fget.get() == Py_None) {
      PyErr_Clear();
      tr_.raise(PyExc_AttributeError, std::string("property '") + PyUnicode_AsUTF8(name) + "' of '" +
                                          PyUnicode_AsUTF8(Ref::steal(PyType_GetQualName(type)).get()) +
                                          "' object has no getter");
    }
    Variable* f;
    if (at.valid()) {
      tr_.guards().type_is(at, d, tr_.line());
      f = tr_.wrap(fget.get(), tr_.sources().derived(SourceKind::PropertyGet, at));
    } else {
      f = tr_.global_object(fget.get(), Ground::pure(self));
    }
    return tr_.call(f, {self});
  }
  if (d == library().cached_property) {
    tr_.guard_identity(at, descr);
    auto* object = self->is(Kind::Object) || self->is(Kind::Module) ? static_cast<ObjectVariable*>(self) : nullptr;
    if (!object || !object->instance_dict(tr_))
      tr_.unsupported("a cached_property of " + self->describe() + " without a dict");
    auto field = [&](const char* field) {
      return tr_.wrap(Ref::steal(native::attr(Ground::guarded(at), descr, field)).get(),
                      tr_.sources().instance_attr(tr_.sources().constant(descr), field));
    };
    // Found here although the instance may have it: through super(), or by another name.
    Variable* key = tr_.force(field("attrname"));
    if (is_none(key)) tr_.unsupported("a cached_property without a name");
    if (Variable* v = object->instance_get(tr_, key->as_constant())) return v;
    Variable* v = tr_.call(field("func"), {self});
    object->instance_set(tr_, key->as_constant(), v);
    return v;
  }
  if (d == library().tuple_getter && self->is(Kind::Object) && static_cast<ObjectVariable*>(self)->base &&
      static_cast<ObjectVariable*>(self)->base->is(Kind::Tuple)) {
    if (at.valid()) tr_.guard_identity(at, descr);
    return tuple_field(tr_, descr, static_cast<ObjectVariable*>(self)->base->as<TupleVariable>());
  }
  if (d == library().lru_cache || (d == library().partial && d->tp_descr_get)) {  // a partial: from 3.14 on
    if (at.valid()) tr_.guard_identity(at, descr);
    return tr_.make<BoundMethodVariable>(tr_.force(value()), self);
  }
  if (d == &PyGetSetDescr_Type || d == &PyMemberDescr_Type) {
    if (at.valid()) tr_.guard_identity(at, descr);
    tr_.unsupported(std::string("attribute '") + PyUnicode_AsUTF8(name) + "' of '" + type->tp_name + "' objects");
  }
  if (d->tp_descr_get) {
    // A descriptor written by the user.
    Variable* v = tr_.force(value());
    SourceId where;
    PyObject* get = lookup_on_type(d, tr_.intern("__get__"), &where);
    if (get && Py_TYPE(get) == &PyFunction_Type) {
      Variable* owner = tr_.global_object(reinterpret_cast<PyObject*>(type), Ground::pure(self));
      return tr_.call(tr_.force(tr_.wrap(get, where)), {v, self, owner});
    }
    tr_.unsupported(std::string("a descriptor of type ") + d->tp_name);
  }
  // Nothing is bound: of an object of another class that may be different, also where the value itself is not looked
  // at.
  if (at.valid()) tr_.guards().type_is(at, d, tr_.line());
  return value();
}

}  // namespace braze::capture
