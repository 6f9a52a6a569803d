// Classes, Python modules, C functions and singletons.
#include <cstddef>
#include <unordered_set>

#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "trace/pytorch/names.h"

namespace braze::capture {
namespace {

Variable* module_attribute(Translator& tr, RealVariable* self, PyObject* name) {
  PyTypeObject* t = Py_TYPE(self->object.get());
  if (self->source.valid()) tr.guards().type_is(self->source, t, tr.line());  // __class__ can be set
  auto of_module = [&](PyObject* n) { return native::type_attr(Ground::fixed(), &PyModule_Type, n); };
  if (named(name, "__class__") && tr.attributes.lookup_on_type(t, name, nullptr) == of_module(name))
    return tr.global_object(reinterpret_cast<PyObject*>(t), Ground::pure(self));
  SourceId at;
  PyObject* on_type = nullptr;  // of a class of the program's
  if (t != &PyModule_Type) {
    bool own = t->tp_getattro != PyModule_Type.tp_getattro &&
               tr.attributes.lookup_on_type(t, tr.intern("__getattribute__"), nullptr) !=
                   of_module(tr.intern("__getattribute__"));
    on_type = tr.attributes.lookup_on_type(t, name, &at);
    if (on_type == of_module(name)) on_type = nullptr;
    bool data = on_type && Py_TYPE(on_type)->tp_descr_set;
    if (!own && data && Py_TYPE(on_type)->tp_descr_get)  // of torch.backends.cudnn: its flags
      return tr.attributes.bind_descriptor(on_type, at, self, t, name);
    if (own || data)
      tr.unsupported(std::string("attribute '") + PyUnicode_AsUTF8(name) + "' of a module that looks it up itself");
  }
  PyObject* dict = PyModule_GetDict(self->object.get());
  auto* d = tr.force(tr.wrap(dict, tr.sources().constant(dict)))->as<DictVariable>();
  if (named(name, "__dict__")) return d;
  // Where it has none, that is guarded.
  if (on_type || PyDict_Contains(dict, name) == 1 || d->wrote(tr, name))
    if (Variable* v = d->get(tr, name); v || !on_type) return v;
  if (on_type) return tr.attributes.bind_descriptor(on_type, at, self, t, name);
  bool computed = d->get(tr, tr.intern("__getattr__")) || t != &PyModule_Type;
  if (!computed && !native::type_attr(Ground::fixed(), t, name)) return d->get(tr, name);
  if (!computed) tr.unsupported("attribute '" + std::string(PyUnicode_AsUTF8(name)) + "' of a module");
  // A lazy module makes its attributes when they are asked for, and keeps them. What code of the program's computes
  // anew each time is looked up anew each time.
  auto programs = [](PyObject* hook) { return hook && PyFunction_Check(hook) && !of_library(hook); };
  SourceId hook_at;
  PyObject* hook = tr.attributes.lookup_on_type(t, tr.intern("__getattr__"), &hook_at);
  bool computes = programs(native::item(Ground::conservative(), dict, "__getattr__")) || programs(hook);
  const char* text = PyUnicode_AsUTF8(name);
  Ref made = Ref::steal(native::attr(Ground::conservative(), self->object.get(), name));
  if (!made && !PyErr_ExceptionMatches(PyExc_AttributeError)) tr.raise_current();
  PyErr_Clear();
  if (PyDict_Contains(dict, name) == 1) return d->get(tr, name);
  if (computes) tr.unsupported("attribute '" + std::string(text ? text : "?") + "' of a module that computes it");
  // PyTorch's configurations answer from a table: that code is followed, and what it reads guarded.
  if (made && hook_at.valid() && PyType_IsSubtype(t, pytorch::get_type(pytorch::Name::ConfigModule)))
    return tr.call(tr.wrap(hook, hook_at), {self, tr.constant(name, Ground::pure(self))});
  return made ? tr.global_object(made.get(), Ground::pure(self)) : d->get(tr, name);
}

Variable* own_field(Translator& tr, PyTypeObject* cls, PyObject* name) {
  if (!(cls->tp_flags & Py_TPFLAGS_HEAPTYPE) || tr.is_made_class(cls)) return nullptr;
  SourceId of = tr.sources().constant(reinterpret_cast<PyObject*>(cls));
  static constexpr std::pair<const char*, size_t> fields[] = {{"__name__", offsetof(PyHeapTypeObject, ht_name)},
                                                              {"__qualname__", offsetof(PyHeapTypeObject, ht_qualname)},
                                                              {"__bases__", offsetof(PyTypeObject, tp_bases)},
                                                              {"__mro__", offsetof(PyTypeObject, tp_mro)}};
  for (auto [attr, offset] : fields)
    if (named(name, attr)) {
      PyObject* value = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(cls) + offset);
      return value ? tr.wrap(value, tr.sources().add(SourceKind::Slot, of, static_cast<int64_t>(offset), name))
                   : nullptr;
    }
  if (!named(name, "__doc__") && !named(name, "__module__") && !named(name, "__annotations__")) return nullptr;
  PyObject* dict = type_dict(cls);
  SourceId at = tr.sources().dict_item(tr.sources().constant(dict), name);
  PyObject* value = native::item(Ground::guarded(at), dict, name);
  if (!value && named(name, "__annotations__")) {  // where CPython 3.14 keeps what it made when it was asked
    tr.guards().absent(at, tr.line());
    PyObject* made = tr.intern("__annotations_cache__");
    at = tr.sources().dict_item(tr.sources().constant(dict), made);
    value = native::item(Ground::guarded(at), dict, made);
  }
  return value && !Py_TYPE(value)->tp_descr_get ? tr.wrap(value, at) : nullptr;
}

// What a metaclass answers that looks attributes up itself; nullptr: it does not.
Variable* asked_of_metaclass(Translator& tr, RealVariable* self, PyObject* name) {
  PyTypeObject* meta = Py_TYPE(self->object.get());
  if (is_fixed_type(meta)) return nullptr;
  SourceId at;
  PyObject* hook = tr.attributes.lookup_on_type(meta, tr.intern("__getattribute__"), &at);
  if (!hook || !PyFunction_Check(hook)) return nullptr;  // pybind11's knows no other attributes
  const std::vector<Variable*> args{self, tr.constant(name, Ground::pure(self))};
  try {
    return tr.call(tr.force(tr.wrap(hook, at)), args);
  } catch (PyRaise& e) {
    if (!tr.is_instance(e.exception, PyExc_AttributeError)) throw;
    PyObject* more = tr.attributes.lookup_on_type(meta, tr.intern("__getattr__"), &at);
    if (!more || !PyFunction_Check(more)) throw;
    return tr.call(tr.force(tr.wrap(more, at)), args);
  }
}

Variable* class_attribute(Translator& tr, RealVariable* self, PyObject* name) {
  auto* cls = reinterpret_cast<PyTypeObject*>(self->object.get());
  PyTypeObject* meta = Py_TYPE(cls);
  if (Variable* v = asked_of_metaclass(tr, self, name)) return v;
  if (named(name, "__class__")) return tr.global_object(reinterpret_cast<PyObject*>(meta), Ground::pure(self));
  if (Variable* v = tr.attributes.written_on_type(cls, name)) return v;
  if (named(name, "__dict__")) {
    if (!(cls->tp_flags & Py_TPFLAGS_HEAPTYPE) || tr.is_made_class(cls) || meta != &PyType_Type)
      tr.unsupported("the dict of a class");
    PyObject* dict = type_dict(cls);
    if (!tr.attributes.writes().empty()) tr.unsupported("the dict of a class that changes");
    tr.attributes.note_shown(cls);
    return tr.make<MappingProxyVariable>(tr.force(tr.wrap(dict, tr.sources().constant(dict))));
  }
  SourceId meta_at, at;
  PyObject* on_meta = tr.attributes.lookup_on_type(meta, name, &meta_at);
  bool data = on_meta && Py_TYPE(on_meta)->tp_descr_set && Py_TYPE(on_meta)->tp_descr_get;
  if (on_meta && meta_at.valid()) tr.guards().type_is(meta_at, Py_TYPE(on_meta), tr.line());
  if (Variable* v = data && on_meta == native::type_attr(Ground::fixed(), &PyType_Type, name) ? own_field(tr, cls, name)
                                                                                              : nullptr)
    return v;
  if (data && (Py_TYPE(on_meta) == &PyGetSetDescr_Type || Py_TYPE(on_meta) == &PyMemberDescr_Type)) {
    bool mutable_class = !is_fixed_type(cls) && !tr.is_made_class(cls);
    static const std::unordered_set<std::string_view> of_layout{
        "__basicsize__", "__itemsize__",    "__flags__", "__dictoffset__", "__weakrefoffset__", "__text_signature__",
        "__base__",      "__type_params__", "__doc__",   "__module__",     "__annotations__"};
    if (mutable_class && !of_layout.count(PyUnicode_AsUTF8(name)))
      tr.unsupported(std::string("attribute '") + PyUnicode_AsUTF8(name) + "' of a class");
    // The getter gives a class without annotations an empty dict, now.
    if (named(name, "__annotations__") && !tr.attributes.writes().empty() && !own_field(tr, cls, name))
      tr.unsupported("annotations of a class without any, after a class was changed");
    if (mutable_class) tr.attributes.guard_bases(cls);  // the base, and what the layout follows from
    Ref v =
        Ref::steal(native::attr(Ground::guarded(tr.sources().constant(self->object.get())), self->object.get(), name));
    if (!v) {
      PyErr_Clear();
      return nullptr;
    }
    if (Variable* own = named(name, "__annotations__") ? own_field(tr, cls, name) : nullptr) return own;
    return tr.from_python(std::move(v), Ground::pure(self));
  }
  PyObject* d = tr.attributes.lookup_on_type(cls, name, &at);
  if (!d) {
    if (on_meta) return tr.attributes.bind_descriptor(on_meta, meta_at, self, meta, name);
    SourceId hook_at;
    if (PyObject* hook = tr.attributes.lookup_on_type(meta, tr.intern("__getattr__"), &hook_at);
        hook && PyFunction_Check(hook))
      return tr.call(tr.force(tr.wrap(hook, hook_at)), {self, tr.constant(name, Ground::pure(self))});
    return nullptr;
  }
  if (data) return tr.attributes.bind_descriptor(on_meta, meta_at, self, meta, name);
  if (PyType_IsSubtype(meta, Py_TYPE(library().enum_))) {
    // Members, and how a version of Python keeps them, are fixed once the class is made.
    Ref v = Ref::steal(native::attr(Ground::fixed(), self->object.get(), name));
    if (!v) tr.raise_current();
    if (at.valid()) tr.guard_identity(at, d);
    if (PyObject_TypeCheck(v.get(), cls)) return tr.global_object(v.get(), Ground::pure(self));
  }
  PyTypeObject* dt = Py_TYPE(d);
  // What is bound here, and how, is a matter of its class.
  if (at.valid()) tr.guards().type_is(at, dt, tr.line());
  auto value = [&] { return at.valid() ? tr.wrap(d, at) : tr.global_object(d, Ground::pure(self)); };
  if (dt == &PyFunction_Type || PyType_IsSubtype(dt, &PyProperty_Type) || dt == &PyMethodDescr_Type ||
      dt == &PyWrapperDescr_Type || dt == &PyMemberDescr_Type || dt == &PyGetSetDescr_Type ||
      dt == library().cached_property)
    return value();
  if (!dt->tp_descr_get || dt == &PyCFunction_Type) return value();
  if (dt == &PyStaticMethod_Type || dt == &PyClassMethod_Type || dt == &PyClassMethodDescr_Type)
    return tr.attributes.bind_descriptor(d, at, self, cls, name);
  SourceId get_at;
  PyObject* get = tr.attributes.lookup_on_type(dt, tr.intern("__get__"), &get_at);
  if (get && PyFunction_Check(get))
    return tr.call(tr.force(tr.wrap(get, get_at)), {tr.force(value()), tr.none(), self});
  if (at.valid()) tr.guard_identity(at, d);
  Ref v = Ref::steal(native::attr(Ground::guarded(at), self->object.get(), name));
  if (!v) tr.raise_current();
  return tr.global_object(v.get(), Ground::pure(self));
}

// A special method that the metaclass of a class defines in Python, called; nullptr when there is none.
Variable* metaclass_method(Translator& tr, RealVariable* self, const char* name, std::vector<Variable*> args) {
  SourceId at;
  PyTypeObject* meta = self->type();
  PyObject* f = tr.attributes.lookup_on_type(meta, tr.intern(name), &at);
  if (!f || !PyFunction_Check(f)) return nullptr;
  return tr.call(tr.attributes.bind_descriptor(f, at, self, meta, tr.intern(name)), std::move(args));
}

bool metaclass_has(Translator& tr, RealVariable* self, const char* name) {
  PyObject* f = tr.attributes.lookup_on_type(self->type(), tr.intern(name), nullptr);
  return f && PyFunction_Check(f);
}

}  // namespace

std::string full_name(PyObject* o) {
  std::string out;
  for (const char* attr : {"__module__", "__qualname__"}) {
    Ref a = Ref::steal(native::attr(Ground::conservative(), o, attr));
    if (!a || !PyUnicode_Check(a.get())) {
      PyErr_Clear();
      continue;
    }
    if (!out.empty()) out += ".";
    out += PyUnicode_AsUTF8(a.get());
  }
  if (out.empty()) out = Py_TYPE(o)->tp_name;
  return out;
}

std::string RealVariable::describe() const {
  if (PyType_Check(object.get())) return "class " + full_name(object.get());
  if (PyCallable_Check(object.get())) return full_name(object.get());
  return Variable::describe();
}

namespace {

// An alias (list[int]) has these itself; for all else it is asked in place of its class.
bool passed_on_by_alias(PyObject* name) {
  static const std::unordered_set<std::string_view> own{"__class__",
                                                        "__origin__",
                                                        "__args__",
                                                        "__unpacked__",
                                                        "__parameters__",
                                                        "__mro_entries__",
                                                        "__reduce_ex__",
                                                        "__reduce__",
                                                        "__copy__",
                                                        "__deepcopy__",
                                                        "__typing_unpacked_tuple_args__"};
  std::string_view n = PyUnicode_AsUTF8(name);
  return own.count(n) == 0 && !(PY_VERSION_HEX >= 0x030D0000 && n == "__bases__");
}

}  // namespace

Variable* RealVariable::getattr(Translator& tr, PyObject* name) {
  PyObject* o = object.get();
  if (PyModule_Check(o)) return module_attribute(tr, this, name);
  if (PyType_Check(o)) return class_attribute(tr, this, name);
  // A function of PyTorch's has what every function has, and what a program puts there.
  if (PyFunction_Check(o)) {
    PyObject* on_class = native::type_attr(Ground::fixed(), &PyFunction_Type, name);
    bool field =
        on_class && std::string_view(PyUnicode_AsUTF8(name)).starts_with("__") && Py_TYPE(on_class)->tp_descr_set;
    if (field || !on_class)
      return tr.make<FunctionVariable>(o, source.valid() ? source : tr.sources().constant(o))->getattr(tr, name);
  }
  if (Py_TYPE(o) == &Py_GenericAliasType && passed_on_by_alias(name)) {
    Ref origin = Ref::steal(native::attr(Ground::fixed(), o, "__origin__"));
    return tr.getattr(tr.global_object(origin.get(), Ground::pure(this)), name);
  }
  SourceId at;
  PyObject* d = tr.attributes.lookup_on_type(Py_TYPE(o), name, &at);
  if (d && (Py_TYPE(d) == &PyFunction_Type || PyType_IsSubtype(Py_TYPE(d), &PyProperty_Type) ||
            Py_TYPE(d) == &PyMethodDescr_Type || Py_TYPE(d) == &PyWrapperDescr_Type)) {
    PyObject** dict = _PyObject_GetDictPtr(o);
    bool shadowed = dict && *dict && !Py_TYPE(d)->tp_descr_set && native::item(Ground::guarded(source), *dict, name);
    if (!shadowed) {
      if (dict && source.valid() && !Py_TYPE(d)->tp_descr_set)
        tr.guards().absent(tr.sources().instance_attr(source, name), tr.line());
      return tr.attributes.bind_descriptor(d, at, this, Py_TYPE(o), name);
    }
  }
  // Methods of other kinds (Cython's) that are known by name.
  if (d && PyType_HasFeature(Py_TYPE(d), Py_TPFLAGS_METHOD_DESCRIPTOR) && find_builtin(d) && !_PyObject_GetDictPtr(o))
    return tr.make<BoundMethodVariable>(at.valid() ? tr.wrap(d, at) : tr.global_object(d, Ground::pure(this)), this);
  // What a getter in C gives is only known to stay for these.
  PyTypeObject* t = Py_TYPE(o);
  auto* type = reinterpret_cast<PyObject*>(t);
  bool fixed = PyCFunction_Check(o) || t == &PyMethodDescr_Type || t == &PyWrapperDescr_Type ||
               t == &PyGetSetDescr_Type || t == &PyMemberDescr_Type || t == &PyClassMethodDescr_Type ||
               t == &PyCode_Type || t == &PyFunction_Type || PyType_IsSubtype(t, &PyProperty_Type) ||
               t == &PyStaticMethod_Type || t == &PyClassMethod_Type || t == library().lru_cache ||
               t == &Py_GenericAliasType || t == union_type() || type == library().op_overload ||
               type == library().op_packet;
  if (!fixed) {
    bool generic = t->tp_getattro == PyObject_GenericGetAttr;
    if (!generic || (d && Py_TYPE(d)->tp_descr_get))
      tr.unsupported(std::string("attribute '") + PyUnicode_AsUTF8(name) + "' of " + describe());
    Ref own = Ref::steal(
        t->tp_dictoffset || (t->tp_flags & Py_TPFLAGS_MANAGED_DICT) ? PyObject_GenericGetDict(o, nullptr) : nullptr);
    PyErr_Clear();
    if (own)
      if (Variable* v = dict_behind(tr, tr.wrap(own.get(), tr.sources().instance_dict(source)))->get(tr, name))
        return v;
    return d ? (at.valid() ? tr.wrap(d, at) : tr.global_object(d, Ground::pure(this))) : nullptr;
  }
  // What the program put on it.
  bool own_dict = t->tp_dictoffset && t->tp_getattro == PyObject_GenericGetAttr && !(d && Py_TYPE(d)->tp_descr_set) &&
                  source.valid();
  if (Ref own = Ref::steal(own_dict ? PyObject_GenericGetDict(o, nullptr) : nullptr)) {
    if (Variable* v = dict_behind(tr, tr.wrap(own.get(), tr.sources().instance_dict(source)))->get(tr, name)) return v;
  }
  PyErr_Clear();
  Ref v = Ref::steal(native::attr(Ground::fixed(), o, name));
  if (!v) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) tr.raise_current();
    PyErr_Clear();
    return nullptr;
  }
  // Kept by the object, and the same in every call.
  if ((PyDict_CheckExact(v.get()) || PyList_CheckExact(v.get())) && Py_REFCNT(v.get()) > 1)
    return tr.global_object(v.get(), Ground::pure(this));
  return tr.from_python(std::move(v), Ground::pure(this));
}

void RealVariable::setattr(Translator& tr, PyObject* name, Variable* value) {
  PyObject* field =
      PyModule_Check(object.get()) ? native::type_attr(Ground::conservative(), Py_TYPE(object.get()), name) : nullptr;
  bool data = field && Py_TYPE(field)->tp_descr_set;
  if (PyModule_Check(object.get()) && value && !data &&
      Py_TYPE(object.get())->tp_setattro == PyModule_Type.tp_setattro) {
    PyObject* dict = PyModule_GetDict(object.get());
    tr.force(tr.wrap(dict, tr.sources().constant(dict)))->as<DictVariable>()->set(tr, name, value);
    return;
  }
  if (PyType_Check(object.get()) && value) {
    // A plain value on a class of the user's: neither a function nor anything else that attribute access treats in a
    // special way.
    auto* cls = reinterpret_cast<PyTypeObject*>(object.get());
    PyTypeObject *meta = Py_TYPE(cls), *of = value->type();
    bool users = !is_fixed_type(cls) && meta->tp_setattro == PyType_Type.tp_setattro;
    PyObject* on_meta = native::type_attr(Ground::conservative(), meta, name);
    bool special =
        (on_meta && Py_TYPE(on_meta)->tp_descr_set) || of->tp_descr_get || of->tp_descr_set || value->is(Kind::Real);
    const char* text = PyUnicode_AsUTF8(name);
    bool dunder = text && text[0] == '_' && text[1] == '_';
    PyObject* before = native::type_attr(Ground::conservative(), cls, name);
    bool was_special = before && (Py_TYPE(before)->tp_descr_get || Py_TYPE(before)->tp_descr_set);
    if (users && !special && !dunder && !was_special && !tr.is_made_class(cls))
      return tr.attributes.write_on_type(cls, name, value);
  }
  Variable::setattr(tr, name, value);
}

Variable* enum_member(Translator& tr, PyTypeObject* cls, const char* table, Variable* key) {
  SourceId at;
  PyObject* map = tr.attributes.lookup_on_type(cls, tr.intern(table), &at);
  if (!map || !PyDict_CheckExact(map) || !at.valid()) return nullptr;
  Variable* members = tr.force(tr.wrap(map, at));
  return members->is(Kind::Dict) ? members->as<DictVariable>()->get(tr, key) : nullptr;
}

Variable* RealVariable::getitem(Translator& tr, Variable* key) {
  PyObject* o = object.get();
  bool is_enum = PyType_Check(o) && PyType_IsSubtype(Py_TYPE(o), Py_TYPE(library().enum_));
  if (PyType_Check(o) && !is_enum)
    if (Variable* v = metaclass_method(tr, this, "__getitem__", {key})) return v;
  if (PyType_Check(o) && !is_enum) {
    SourceId at;
    PyObject* d = tr.attributes.lookup_on_type(reinterpret_cast<PyTypeObject*>(o), tr.intern("__class_getitem__"), &at);
    Ref inner =
        d && Py_TYPE(d) == &PyClassMethod_Type ? Ref::steal(native::attr(Ground::fixed(), d, "__func__")) : Ref();
    if (inner && PyFunction_Check(inner.get()) && !of_library(inner.get()))
      return tr.force(tr.call(tr.getattr(this, "__class_getitem__"), {key}));
  }
  if (is_enum) {
    // A member by its name.
    PyObject* stock = native::type_attr(Ground::conservative(), Py_TYPE(library().enum_), "__getitem__");
    if (tr.attributes.lookup_on_type(Py_TYPE(o), tr.intern("__getitem__"), nullptr) == stock)
      if (Variable* v = enum_member(tr, reinterpret_cast<PyTypeObject*>(o), "_member_map_", key)) return v;
  }
  if (PyType_Check(o)) {
    // Generic classes (list[int]) and enum members by name.
    if (Ref k = typing_argument(tr, key)) {
      Ref v = Ref::steal(PyObject_GetItem(o, k.get()));
      if (!v) tr.name_of(reinterpret_cast<PyTypeObject*>(o)), tr.raise_current();
      return tr.global_object(v.get(), Ground::pure(this, key));
    }
  }
  if (!PyType_Check(o) && (PyMapping_Check(o) || PySequence_Check(o))) tr.unsupported("an item of " + describe());
  return Variable::getitem(tr, key);
}

void RealVariable::setitem(Translator& tr, Variable* key, Variable* value) {
  if (PyMapping_Check(object.get()) || PySequence_Check(object.get()))
    tr.unsupported(Reason::UnsupportedMutation, "an item of " + describe() + " is set");
  Variable::setitem(tr, key, value);
}

void RealVariable::delitem(Translator& tr, Variable* key) {
  if (PyMapping_Check(object.get()) || PySequence_Check(object.get()))
    tr.unsupported(Reason::UnsupportedMutation, "an item of " + describe() + " is deleted");
  Variable::delitem(tr, key);
}

bool RealVariable::contains(Translator& tr, Variable* item) {
  if (PyType_Check(object.get()))
    if (Variable* v = metaclass_method(tr, this, "__contains__", {item})) return tr.truth(v);
  return Variable::contains(tr, item);
}

std::vector<Variable*> RealVariable::items(Translator& tr) {
  PyObject* o = object.get();
  if (PyType_Check(o) && PyType_IsSubtype(Py_TYPE(o), Py_TYPE(library().enum_))) {
    Ref all = Ref::steal(PySequence_Tuple(o));
    if (!all) tr.raise_current();
    for (const char* table : {"_member_names_", "_member_map_"}) {
      SourceId at;
      PyObject* of = tr.attributes.lookup_on_type(reinterpret_cast<PyTypeObject*>(o), tr.intern(table), &at);
      Variable* known = of && at.valid() ? tr.force(tr.wrap(of, at)) : nullptr;
      if (known && known->is(Kind::List))
        for (Variable* name : known->items(tr)) tr.force(name);
      if (known && known->is(Kind::Dict))
        for (const auto& e : known->as<DictVariable>()->entries(tr)) tr.force(e.value);
    }
    std::vector<Variable*> out;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(all.get()); ++i)
      out.push_back(tr.global_object(PyTuple_GET_ITEM(all.get(), i), Ground::pure(this)));
    return out;
  }
  // What neither says how it is iterated nor has items by number.
  PyTypeObject* t = Py_TYPE(o);
  bool none = !t->tp_iter && !(t->tp_as_sequence && t->tp_as_sequence->sq_item) && !PySequence_Check(o);
  if (none) tr.raise(PyExc_TypeError, std::string("'") + tr.name_of(t) + "' object is not iterable");
  tr.unsupported("iteration over " + describe());
}

Variable* RealVariable::next(Translator& tr) {
  // How far it has come is no part of what guards see. The capture starts again and stops before it looks at the
  // iterator, which would be guarded to be the same object.
  if (Py_TYPE(object.get())->tp_iternext) tr.mutate();
  if (Py_TYPE(object.get())->tp_iternext)
    tr.unsupported("an iterator that was made before, of type " + std::string(Py_TYPE(object.get())->tp_name));
  return Variable::next(tr);
}

Variable* RealVariable::iter(Translator& tr) {
  if (PyType_Check(object.get()) && !has_len(tr))
    if (Variable* v = metaclass_method(tr, this, "__iter__", {})) return tr.force(v);
  return tr.make<SequenceIterator>(this, items(tr));
}

bool RealVariable::has_len(Translator&) {
  return PyType_Check(object.get()) && PyType_IsSubtype(Py_TYPE(object.get()), Py_TYPE(library().enum_));
}

int64_t RealVariable::len(Translator& tr) {
  if (PyType_Check(object.get()) && !has_len(tr))
    if (Variable* v = metaclass_method(tr, this, "__len__", {})) {
      PyObject* n = constant_of(tr.force(v));
      if (!n || !PyLong_Check(n)) tr.unsupported("__len__ that does not return an int");
      return PyLong_AsLongLong(n);
    }
  if (!PySequence_Check(object.get()) && !PyMapping_Check(object.get()) && !has_len(tr)) return Variable::len(tr);
  return static_cast<int64_t>(items(tr).size());
}

bool RealVariable::truth(Translator& tr) {
  PyTypeObject* t = type();
  if (PyType_Check(object.get()) && t != &PyType_Type && !has_len(tr)) {
    if (Variable* v = metaclass_method(tr, this, "__bool__", {})) return tr.truth(v);
    if (metaclass_has(tr, this, "__len__")) return len(tr) != 0;
  }
  if (!PyType_Check(object.get()) &&
      ((t->tp_as_number && t->tp_as_number->nb_bool) || (t->tp_as_sequence && t->tp_as_sequence->sq_length) ||
       (t->tp_as_mapping && t->tp_as_mapping->mp_length)))
    tr.unsupported("the truth value of " + describe());
  return true;
}

Ref RealVariable::hash_key(Translator& tr) {
  // A weak reference hashes and compares as what it refers to, while that lives.
  if (PyWeakref_Check(object.get())) refuse_if_let_go(tr, PyWeakref_GET_OBJECT(object.get()));
  return object;
}

Reg RealVariable::build(Codegen& cg) { return cg.constant(object.get()); }

}  // namespace braze::capture
