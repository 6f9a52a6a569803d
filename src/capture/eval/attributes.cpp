// Attribute lookup by the rules of object.__getattribute__ and type.__getattribute__, guarded at each step that mattered.
#include <cstddef>

#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

// Nothing is read of these but who they are.
bool is_in_c(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  return o == Py_None || t == &PyWrapperDescr_Type || t == &PyMethodDescr_Type || t == &PyClassMethodDescr_Type || t == &PyGetSetDescr_Type || t == &PyMemberDescr_Type || PyCFunction_Check(o);
}

}  // namespace

Variable* Translator::written_on_type(PyTypeObject* type, PyObject* name) {
  if (type_writes_.empty() || !type->tp_mro) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    auto* t = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(type->tp_mro, i));
    for (const TypeWrite& w : type_writes_)
      if (w.type == t && PyUnicode_Compare(w.name, name) == 0) return w.value;
    bool fixed = is_fixed_type(t) || is_made_class(t);
    SourceId at = fixed ? SourceId() : sources().dict_item(sources().constant(type_dict(t)), name);
    if (native::item(fixed ? Ground::fixed() : Ground::guarded(at), type_dict(t), name)) return nullptr;
    // What was written on a base is seen as long as no class before it has one of its own.
    if (!fixed) guards().absent(at, line());
  }
  return nullptr;
}

void Translator::write_on_type(PyTypeObject* type, PyObject* name, Variable* value) {
  mutate();
  keep(Ref::borrow(name));
  for (TypeWrite& w : type_writes_)
    if (w.type == type && PyUnicode_Compare(w.name, name) == 0) {
      w.value = value;
      return;
    }
  type_writes_.push_back({type, name, value});
}

void Translator::guard_bases(PyTypeObject* type) {
  if (is_fixed_type(type) || is_made_class(type) || !type->tp_mro) return;
  auto [it, fresh] = guarded_mros_.try_emplace(type, guards().size());
  if (!fresh && it->second < guards().size()) return;  // else a part of the capture was rolled back, and its guards with it
  it->second = guards().size();
  SourceId mro = sources().add(SourceKind::Slot, sources().constant(reinterpret_cast<PyObject*>(type)), offsetof(PyTypeObject, tp_mro), intern("__mro__"));
  guards().length(mro, PyTuple_GET_SIZE(type->tp_mro), line());
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(type->tp_mro); ++i)
    if (PyObject* base = PyTuple_GET_ITEM(type->tp_mro, i); base != reinterpret_cast<PyObject*>(&PyBaseObject_Type)) guard_identity(sources().tuple_item(mro, i), base);
}

PyObject* Translator::lookup_on_type(PyTypeObject* type, PyObject* name, SourceId* source) {
  if (!type_writes_.empty() && written_on_type(type, name))
    unsupported(std::string("attribute '") + PyUnicode_AsUTF8(name) + "' of class " + type->tp_name + ", which the code has set,");
  if (is_fixed_type(type)) {
    if (source) *source = {};
    return native::type_attr(Ground::fixed(), type, name);
  }
  SourceId at = sources().type_attr(sources().constant(reinterpret_cast<PyObject*>(type)), name);
  if (source) *source = at;
  PyObject* found = native::type_attr(Ground::guarded(at), type, name);
  // That the object is of this class is guarded where the object was met.
  if (!found) guards().absent(at, line());
  else if (!source || is_in_c(found)) guard_identity(at, found);
  else guards().exists(at, line());
  if (PyTypeObject* of = found ? Py_TYPE(found) : nullptr; of && !is_fixed_type(of)) {
    // An instance of the program's class is a descriptor if that class says so.
    for (const char* method : {"__get__", "__set__", "__delete__"}) {
      SourceId said = sources().type_attr(sources().constant(reinterpret_cast<PyObject*>(of)), intern(method));
      if (native::type_attr(Ground::guarded(said), of, intern(method))) guards().exists(said, line());
      else guards().absent(said, line());
    }
  }
  return found;
}

void Translator::tensor_operator(const std::string& method) {
  SourceId at;
  PyObject* found = lookup_on_type(library().tensor, intern(method.c_str()), &at);
  if (!found) return;
  if (PyFunction_Check(found) && !of_library(found)) unsupported("torch.Tensor." + method + ", which the program replaced");
  guard_identity(at, found);
}

const TypeInfo& Translator::type_info(PyTypeObject* type) {
  auto [it, fresh] = types_.try_emplace(type);
  if (fresh) {
    TypeInfo& info = it->second;
    SourceId at;
    PyObject* get = lookup_on_type(type, intern("__getattribute__"), &at);
    if (get && at.valid()) guard_identity(at, get);
    // Classes in C name the generic function themselves.
    info.generic = get && Py_TYPE(get) == &PyWrapperDescr_Type &&
                   reinterpret_cast<PyWrapperDescrObject*>(get)->d_wrapped == reinterpret_cast<void*>(PyObject_GenericGetAttr);
    if (!info.generic) info.getattribute = get;
    PyObject* hook = lookup_on_type(type, intern("__getattr__"), &at);
    if (hook && at.valid()) guard_identity(at, hook);
    info.getattr = hook;
  }
  return it->second;
}

Variable* Translator::special_method(Variable* self, PyObject* name) {
  SourceId at;
  PyObject* found = lookup_on_type(self->type(), name, &at);
  if (!found || found == Py_None) return nullptr;
  if (at.valid()) return force(wrap(found, at));
  return global_object(found, Ground::pure(self));
}

Variable* Translator::bind_descriptor(PyObject* descr, SourceId at, Variable* self, PyTypeObject* type, PyObject* name) {
  PyTypeObject* d = Py_TYPE(descr);
  auto value = [&]() -> Variable* { return at.valid() ? wrap(descr, at) : global_object(descr, Ground::pure(self)); };
  if (d == &PyFunction_Type) return make<BoundMethodVariable>(force(value()), self);
  if (d == &PyMethodDescr_Type || d == &PyWrapperDescr_Type) {
    if (at.valid()) guard_identity(at, descr);
    return make<BuiltinMethodVariable>(self, descr, reinterpret_cast<PyDescrObject*>(descr)->d_type, name);
  }
  if (d == &PyStaticMethod_Type) {
    Ref fn = Ref::steal(native::attr(Ground::fixed(), descr, "__func__"));
    if (!at.valid()) return global_object(fn.get(), Ground::pure(self));
    guards().type_is(at, d, line());
    return wrap(fn.get(), sources().derived(SourceKind::StaticTarget, at));
  }
  if (d == &PyClassMethod_Type) {
    Ref fn = Ref::steal(native::attr(Ground::fixed(), descr, "__func__"));
    PyObject* through = self->as_constant();
    Variable* cls = through && PyType_Check(through) ? self : global_object(reinterpret_cast<PyObject*>(type), Ground::pure(self));
#if PY_VERSION_HEX < 0x030D0000
    if (PyType_IsSubtype(Py_TYPE(fn.get()), &PyProperty_Type)) {  // read through the class
      Ref get = Ref::steal(native::attr(Ground::fixed(), fn.get(), "fget"));
      if (at.valid()) guard_identity(at, descr);
      if (get && PyFunction_Check(get.get())) return call(global_object(get.get(), Ground::pure(self)), {cls});
      PyErr_Clear();
    }
#endif
    if (!PyFunction_Check(fn.get()) && Py_TYPE(fn.get())->tp_descr_get && !PyCFunction_Check(fn.get())) unsupported("a class method of a descriptor");
    Variable* f;
    if (at.valid()) {
      guards().type_is(at, d, line());
      f = wrap(fn.get(), sources().derived(SourceKind::StaticTarget, at));
    } else {
      f = global_object(fn.get(), Ground::pure(self));
    }
    return make<BoundMethodVariable>(force(f), cls);
  }
  if (d == &PyClassMethodDescr_Type) {
    if (at.valid()) guard_identity(at, descr);
    Variable* cls = global_object(reinterpret_cast<PyObject*>(type), Ground::pure(self));
    return make<BuiltinMethodVariable>(cls, descr, reinterpret_cast<PyDescrObject*>(descr)->d_type, name);
  }
  if (PyType_IsSubtype(d, &PyProperty_Type)) {
    Ref fget = Ref::steal(native::attr(Ground::guarded(at), descr, "fget"));
    if (!fget || fget.get() == Py_None) {
      PyErr_Clear();
      raise(PyExc_AttributeError, std::string("property '") + PyUnicode_AsUTF8(name) + "' of '" + PyUnicode_AsUTF8(Ref::steal(PyType_GetQualName(type)).get()) + "' object has no getter");
    }
    Variable* f;
    if (at.valid()) {
      guards().type_is(at, d, line());
      f = wrap(fget.get(), sources().derived(SourceKind::PropertyGet, at));
    } else {
      f = global_object(fget.get(), Ground::pure(self));
    }
    return call(f, {self});
  }
  if (d == library().cached_property) {
    guard_identity(at, descr);
    if (self->is(Kind::Object) && !static_cast<ObjectVariable*>(self)->instance_dict(*this)) unsupported("a cached_property of an object without a dict");
    Ref fn = Ref::steal(native::attr(Ground::guarded(at), descr, "func"));
    Variable* v = call(wrap(fn.get(), sources().instance_attr(sources().constant(descr), "func")), {self});
    if (self->is(Kind::Object) || self->is(Kind::Module)) {
      static_cast<ObjectVariable*>(self)->instance_set(*this, name, v);
      return v;
    }
    unsupported("a cached_property of " + self->describe());
  }
  if (d == library().tuple_getter && self->is(Kind::Object) && static_cast<ObjectVariable*>(self)->base && static_cast<ObjectVariable*>(self)->base->is(Kind::Tuple)) {
    if (at.valid()) guard_identity(at, descr);
    return tuple_field(*this, descr, static_cast<ObjectVariable*>(self)->base->as<TupleVariable>());
  }
  if (d == library().lru_cache) {
    if (at.valid()) guard_identity(at, descr);
    return make<BoundMethodVariable>(force(value()), self);
  }
  if (d == &PyGetSetDescr_Type || d == &PyMemberDescr_Type) {
    if (at.valid()) guard_identity(at, descr);
    unsupported(std::string("attribute '") + PyUnicode_AsUTF8(name) + "' of '" + type->tp_name + "' objects");
  }
  if (d->tp_descr_get) {
    // A descriptor written by the user.
    Variable* v = force(value());
    SourceId where;
    PyObject* get = lookup_on_type(d, intern("__get__"), &where);
    if (get && Py_TYPE(get) == &PyFunction_Type) {
      Variable* owner = global_object(reinterpret_cast<PyObject*>(type), Ground::pure(self));
      return call(force(wrap(get, where)), {v, self, owner});
    }
    unsupported(std::string("a descriptor of type ") + d->tp_name);
  }
  // Nothing is bound: of an object of another class that may be different, also where the value itself is not looked at.
  if (at.valid()) guards().type_is(at, d, line());
  return value();
}

}  // namespace braze::capture
