#include "capture/vars/object.h"

#include <structmember.h>

#include <cstddef>
#include <cstring>
#include <functional>
#include <utility>

#include "capture/builtins/builtins.h"
#include "capture/cpython/class_in_c.h"
#include "capture/cpython/imported.h"
#include "capture/cpython/texts.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

std::string text(PyObject* name) { return PyUnicode_AsUTF8(name); }

bool is_c_method(PyObject* descr) {
  return Py_TYPE(descr) == &PyMethodDescr_Type || Py_TYPE(descr) == &PyWrapperDescr_Type;
}

}  // namespace

std::string ObjectVariable::describe() const { return std::string("an object of class ") + cls->tp_name; }

bool ObjectVariable::has_chain(PyObject* e) {
  auto* fields = reinterpret_cast<PyBaseExceptionObject*>(e);
  return e && (fields->cause || fields->context);
}

bool ObjectVariable::is_exception() const {
  return PyType_IsSubtype(cls, reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
}

// ---- the instance dict and slots ----

DictVariable* ObjectVariable::instance_dict(Translator& tr) {
  if (dict_) return dict_;
  if (!real) {
    if (cls->tp_dictoffset == 0 && !(cls->tp_flags & Py_TPFLAGS_MANAGED_DICT)) return nullptr;
    return dict_ = instance_dict_of(tr, this);
  }
  if (cls->tp_dictoffset == 0 && !(cls->tp_flags & Py_TPFLAGS_MANAGED_DICT)) return nullptr;
  Ref d = Ref::steal(PyObject_GenericGetDict(real.get(), nullptr));
  if (!d) {
    PyErr_Clear();
    return nullptr;
  }
  return dict_ = dict_behind(tr, tr.wrap(d.get(), tr.sources().instance_dict(source)));
}

// What weak references tell is not known while a change waits that may have let go of what they refer to.
static void refuse_weak_content(Translator& tr, PyTypeObject* cls, PyObject* name) {
  if (tr.effects.modifications().empty() || PyUnicode_CompareWithASCIIString(name, "data") != 0) return;
  for (const char* c : {"WeakValueDictionary", "WeakKeyDictionary", "WeakSet"})
    if (PyType_IsSubtype(cls, reinterpret_cast<PyTypeObject*>(imported("weakref", c))))
      tr.unsupported("a container of weak references after a change");
}

Variable* ObjectVariable::instance_get(Translator& tr, PyObject* name) {
  refuse_weak_content(tr, cls, name);
  DictVariable* d = instance_dict(tr);
  return d ? d->get(tr, name) : nullptr;
}

void ObjectVariable::instance_set(Translator& tr, PyObject* name, Variable* value) {
  DictVariable* d = instance_dict(tr);
  if (!d && tr.attributes.lookup_on_type(cls, name, nullptr))
    tr.raise(PyExc_AttributeError,
             std::string("'") + tr.name_of(cls) + "' object attribute '" + text(name) + "' is read-only");
  if (!d) {
    bool why = PY_VERSION_HEX >= 0x030D0000 && cls->tp_setattro == PyObject_GenericSetAttr;
    tr.raise(PyExc_AttributeError, std::string("'") + tr.name_of(cls) + "' object has no attribute '" + text(name) +
                                       (why ? "' and no __dict__ for setting new attributes" : "'"));
  }
  if (value) {
    d->set(tr, name, value);
  } else if (!d->remove(tr, tr.constant(name, Ground::pure(this, value)))) {
    tr.raise(PyExc_AttributeError,
             std::string("'") + tr.name_of(cls) + "' object has no attribute '" + text(name) + "'");
  }
}

// Whether exceptions of the class keep more than their arguments: what they were made with, or initialised with last.
static bool has_fields(PyTypeObject* cls) { return class_in_c(cls)->tp_basicsize != sizeof(PyBaseExceptionObject); }

// A slot taken from another class raises.
static void check_slot_owner(Translator& tr, ObjectVariable* o, PyObject* descr) {
  auto* d = reinterpret_cast<PyDescrObject*>(descr);
  if (PyType_IsSubtype(o->cls, d->d_type)) return;
  tr.raise(PyExc_TypeError, "descriptor '" + text(d->d_name) + "' for '" + tr.name_of(d->d_type) +
                                "' objects doesn't apply to a '" + tr.name_of(o->cls) + "' object");
}

Variable* ObjectVariable::read_slot(Translator& tr, PyObject* descr, PyObject* name) {
  check_slot_owner(tr, this, descr);
  name = reinterpret_cast<PyDescrObject*>(descr)->d_name;  // also by another name of the class
  for (const Slot& s : slots)
    if (PyUnicode_Compare(s.name, name) == 0) return s.value;
  PyMemberDef* m = reinterpret_cast<PyMemberDescrObject*>(descr)->d_member;
  if (is_exception() && !real) {
    auto* args = base ? base->as<TupleVariable>() : nullptr;
    size_t n = args ? args->elements.size() : 0;
    if (named(name, "value")) return n ? args->elements[0] : tr.none();  // of StopIteration
    if (named(name, "__suppress_context__")) return tr.boolean(false, Ground::pure(this));
    if (raised_here) tr.raise_natively(this, "a field of an exception");
    if (named(name, "code"))
      return n == 1 ? args->elements[0] : n ? static_cast<Variable*>(args) : tr.none();  // of SystemExit
    if (named(name, "msg")) return n == 1 ? args->elements[0] : tr.none();               // of ImportError
    return tr.none();
  }
  if (!real) return nullptr;
  if (m->type != T_OBJECT_EX && m->type != T_OBJECT) tr.unsupported("member '" + text(name) + "' of " + describe());
  PyObject* v = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(real.get()) + m->offset);
  SourceId at = tr.sources().add(SourceKind::Slot, source, m->offset, name);
  if (!v) {
    tr.guards().absent(at, tr.line());
    return m->type == T_OBJECT ? tr.none() : nullptr;
  }
  tr.guards().exists(at, tr.line());
  return tr.wrap(v, at);
}

// ---- attributes ----

Variable* ObjectVariable::generic_getattr(Translator& tr, PyObject* name) {
  static PyObject* object_class =
      native::type_attr(Ground::fixed(), &PyBaseObject_Type, PyUnicode_InternFromString("__class__"));
  if (named(name, "__class__") && tr.attributes.lookup_on_type(cls, name, nullptr) == object_class)
    return tr.global_object(reinterpret_cast<PyObject*>(cls), Ground::pure(this));
  if (Variable* written = tr.attributes.written_on_type(cls, name)) {
    Variable* own = instance_get(tr, name);
    return own ? own : written;
  }
  SourceId at;
  PyObject* descr = tr.attributes.lookup_on_type(cls, name, &at);
  if (descr && Py_TYPE(descr)->tp_descr_set && Py_TYPE(descr)->tp_descr_get) {
    if (Py_TYPE(descr) == &PyMemberDescr_Type) {
      if (at.valid()) tr.guard_identity(at, descr);
      if (!real && named(name, "__dict__") && PyType_IsSubtype(cls, library().simple_namespace))
        return instance_dict(tr);
      return read_slot(tr, descr, name);
    }
    if (Py_TYPE(descr) == &PyGetSetDescr_Type) {
      if (named(name, "__dict__"))
        if (DictVariable* d = instance_dict(tr)) return d;
      if (is_exception()) {
        for (const Slot& s : slots)
          if (PyUnicode_Compare(s.name, name) == 0) return s.value;
        if (named(name, "args") && base) return base;
        if (named(name, "__suppress_context__")) {
          if (real) tr.unsupported("a field of an exception");
          return tr.boolean(false, Ground::pure(this));
        }
        for (auto [field, offset] : {std::pair{"__traceback__", offsetof(PyBaseExceptionObject, traceback)},
                                     {"__cause__", offsetof(PyBaseExceptionObject, cause)},
                                     {"__context__", offsetof(PyBaseExceptionObject, context)}}) {
          if (!named(name, field)) continue;
          if (!real) {
            if (!named(name, "__traceback__") && has_chain(like.get()))
              tr.raise_natively(this, "a field of an exception");
            if (!named(name, "__traceback__") || !tr.was_raised(this) || bare) return tr.none();
            if (!traceback_) traceback_ = tr.make<TracebackVariable>(this);
            return traceback_;
          }
          PyObject* v = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(real.get()) + offset);
          SourceId where = tr.sources().add(SourceKind::Slot, source, static_cast<int64_t>(offset), name);
          if (v) return tr.guards().exists(where, tr.line()), tr.wrap(v, where);
          tr.guards().absent(where, tr.line());
          return tr.none();
        }
      }
    }
    return tr.attributes.bind_descriptor(descr, at, this, cls, name);
  }
  if (Variable* v = instance_get(tr, name)) {
    if (descr && at.valid()) tr.guards().type_is(at, Py_TYPE(descr), tr.line());
    return v;
  }
  return descr ? tr.attributes.bind_descriptor(descr, at, this, cls, name) : nullptr;
}

Variable* ObjectVariable::getattr(Translator& tr, PyObject* name) {
  const TypeInfo& info = tr.attributes.type_info(cls);
  Variable* found = nullptr;
  if (named(name, "__weakref__") && !source.valid() && PyType_SUPPORTS_WEAKREFS(cls) &&
      !tr.effects.weakrefs.count(this))
    return tr.none();
  if (info.generic) {
    try {
      found = generic_getattr(tr, name);
    } catch (PyRaise& e) {
      if (!info.getattr || !tr.is_instance(e.exception, PyExc_AttributeError)) throw;
    }
  } else {
    if (!PyFunction_Check(info.getattribute)) {
      if (is_exception()) return generic_getattr(tr, name);
      tr.unsupported(std::string("attribute access of class ") + cls->tp_name);
    }
    Variable* get = tr.attributes.special_method(this, "__getattribute__");
    try {
      return tr.call(get, {this, tr.constant(name, Ground::pure(this))});
    } catch (PyRaise& e) {
      if (!info.getattr || !tr.is_instance(e.exception, PyExc_AttributeError)) throw;
    }
  }
  if (found || !info.getattr) return found;
  if (info.getattr == library().module_getattr) return module_getattr(tr, this, name);
  return tr.call(tr.attributes.special_method(this, "__getattr__"), {this, tr.constant(name, Ground::pure(this))});
}

void ObjectVariable::set_field(Translator& tr, PyObject* name, Variable* value) {
  tr.mutate();
  tr.effects.modified(this);
  tr.keep(Ref::borrow(name));
  for (Slot& s : slots)
    if (PyUnicode_Compare(s.name, name) == 0) {
      s.value = value;
      return;
    }
  slots.push_back({name, value, true});
}

void ObjectVariable::slots_gone(PyObject* name, bool there) {
  for (Slot& s : slots)
    if (PyUnicode_Compare(s.name, name) == 0) s.there = there;
}

void ObjectVariable::generic_setattr(Translator& tr, PyObject* name, Variable* value) {
  tr.keep(Ref::borrow(name));
  if (tr.attributes.written_on_type(cls, name)) return instance_set(tr, name, value);
  SourceId at;
  PyObject* descr = tr.attributes.lookup_on_type(cls, name, &at);
  // One that has no say in this may become one that has.
  if (descr && !Py_TYPE(descr)->tp_descr_set && at.valid()) tr.guards().type_is(at, Py_TYPE(descr), tr.line());
  if (descr && Py_TYPE(descr)->tp_descr_set) {
    PyTypeObject* d = Py_TYPE(descr);
    if (at.valid()) tr.guard_identity(at, descr);
    if (PyType_IsSubtype(d, &PyProperty_Type) && d->tp_descr_set == PyProperty_Type.tp_descr_set) {
      Ref setter = Ref::steal(native::attr(Ground::guarded(at), descr, value ? "fset" : "fdel"));
      if (!setter || setter.get() == Py_None) {
        PyErr_Clear();
        tr.raise(PyExc_AttributeError, std::string("property '") + text(name) + "' of '" +
                                           text(Ref::steal(PyType_GetQualName(cls)).get()) + "' object has no " +
                                           (value ? "setter" : "deleter"));
      }
      tr.call(tr.global_object(setter.get(), Ground::pure(this, value)),
              value ? std::vector<Variable*>{this, value} : std::vector<Variable*>{this});
      return;
    }
    if (d == &PyMemberDescr_Type) {
      PyMemberDef* m = reinterpret_cast<PyMemberDescrObject*>(descr)->d_member;
      check_slot_owner(tr, this, descr);
      PyObject* as_written = name;
      name = reinterpret_cast<PyDescrObject*>(descr)->d_name;
      if (m->flags & READONLY || (m->type != T_OBJECT_EX && m->type != T_OBJECT))
        tr.unsupported("member '" + text(name) + "' of " + describe() + " is set");
      if (!value && !read_slot(tr, descr, name)) tr.raise(PyExc_AttributeError, text(as_written));
      bool there = true;
      if (!value && real) {
        // Deleting it at run time must find it there.
        SourceId slot = tr.sources().add(SourceKind::Slot, source, m->offset, name);
        there = *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(real.get()) + m->offset);
        if (there)
          tr.guards().exists(slot, tr.line());
        else
          tr.guards().absent(slot, tr.line());
      }
      set_field(tr, name, value);
      if (!value) slots_gone(name, there);
      return;
    }
    if (d == &PyGetSetDescr_Type && is_exception()) {
      // What the setters accept.
      Variable* v = value ? tr.force(value) : nullptr;
      bool exception =
          v && (is_none(v) || PyType_IsSubtype(v->type(), reinterpret_cast<PyTypeObject*>(PyExc_BaseException)));
      if (named(name, "args") && v && v->is(Kind::Tuple) && !real && !has_fields(cls)) {
        tr.mutate();
        base = v;
        return;
      }
      if (named(name, "__traceback__") && v) {
        if (v == traceback_ && !bare) return;  // its own
        if (!real && is_none(v)) {
          tr.mutate();
          bare = true;
          return;
        }
        if (real && (is_none(v) || v->type() == &PyTraceBack_Type)) return set_field(tr, name, v);
      }
      if (!exception || named(name, "__traceback__") || !(named(name, "__cause__") || named(name, "__context__")))
        tr.unsupported("attribute '" + text(name) + "' of " + describe() + " is set");
      set_field(tr, name, value);
      if (named(name, "__cause__"))
        set_field(tr, tr.intern("__suppress_context__"), tr.boolean(true, Ground::pure(this, value)));
      return;
    }
    if (Variable* set = tr.attributes.special_method(tr.global_object(descr, Ground::pure(this, value)),
                                                     value ? "__set__" : "__delete__");
        set && set->is(Kind::Function)) {
      std::vector<Variable*> args{tr.global_object(descr, Ground::pure(this, value)), this};
      if (value) args.push_back(value);
      tr.call(set, args);
      return;
    }
    tr.unsupported(Reason::UnsupportedMutation, "attribute '" + text(name) + "' of " + describe() + " is set");
  }
  instance_set(tr, name, value);
}

void ObjectVariable::setattr(Translator& tr, PyObject* name, Variable* value) {
  SourceId at;
  PyObject* set = tr.attributes.lookup_on_type(cls, tr.intern(value ? "__setattr__" : "__delattr__"), &at);
  if (set && at.valid()) tr.guard_identity(at, set);
  static PyObject* module_delattr =
      native::type_attr(Ground::fixed(), library().module, PyUnicode_InternFromString("__delattr__"));
  if (set == library().module_setattr || set == module_delattr) return module_setattr(tr, this, name, value);
  if (set && Py_TYPE(set) == &PyWrapperDescr_Type &&
      reinterpret_cast<PyWrapperDescrObject*>(set)->d_wrapped == reinterpret_cast<void*>(PyObject_GenericSetAttr))
    return generic_setattr(tr, name, value);
  if (set && PyFunction_Check(set)) {
    std::vector<Variable*> args{this, tr.constant(name, Ground::pure(this, value))};
    if (value) args.push_back(value);
    tr.call(tr.attributes.special_method(this, value ? "__setattr__" : "__delattr__"), args);
    return;
  }
  if (is_exception()) return generic_setattr(tr, name, value);
  Variable::setattr(tr, name, value);
}

// ---- protocols ----

Variable* ObjectVariable::special(Translator& tr, const char* name, std::vector<Variable*> args) {
  SourceId at;
  PyObject* raw = tr.attributes.lookup_on_type(cls, tr.intern(name), &at);
  if (!raw) return nullptr;
  if (raw == Py_None) tr.raise(PyExc_TypeError, "'NoneType' object is not callable");
  if (is_c_method(raw)) {
    if (at.valid()) tr.guard_identity(at, raw);
    if (!PyType_IsSubtype(cls, reinterpret_cast<PyDescrObject*>(raw)->d_type))
      tr.unsupported(Reason::RaisedException, std::string(name) + " of another class");
    Args a{std::move(args), {}};
    return call_builtin_method(tr, this, reinterpret_cast<PyDescrObject*>(raw)->d_type, tr.intern(name), a);
  }
  Variable* bound = tr.attributes.bind_descriptor(raw, at, this, cls, tr.intern(name));
  return tr.call(bound, std::move(args));
}

// List, Optional... of module typing: what their subscripts give depends on nothing else.
static bool is_typing_form(PyTypeObject* cls) {
  PyObject* module = type_dict(cls) ? native::item(Ground::fixed(), type_dict(cls), "__module__") : nullptr;
  return module && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "typing") == 0;
}

Ref typing_argument(Translator& tr, Variable* v) {
  v = tr.force(v);
  if (v->is(Kind::Object)) {
    auto* o = v->as<ObjectVariable>();
    if (!o->real || !o->source.valid() || !is_typing_form(o->cls)) return Ref();
    tr.guard_identity(o->source, o->real.get());
    return o->real;
  }
  if ((v->is(Kind::List) && v->type() == &PyList_Type) || (v->is(Kind::Tuple) && v->type() == &PyTuple_Type)) {
    Ref all = Ref::steal(PyList_New(0));
    for (Variable* e : static_cast<SequenceVariable*>(v)->elements) {
      Ref one = typing_argument(tr, e);
      if (!one) return Ref();
      PyList_Append(all.get(), one.get());
    }
    return v->is(Kind::List) ? all : Ref::steal(PyList_AsTuple(all.get()));
  }
  return v->as_constant() || tr.real.is_python_constant(v) ? tr.real.to_python(v) : Ref();
}

Variable* ObjectVariable::getitem(Translator& tr, Variable* key) {
  if (Ref argument = real && source.valid() && is_typing_form(cls) ? typing_argument(tr, key) : Ref()) {
    tr.guard_identity(source, real.get());
    Ref form = Ref::steal(PyObject_GetItem(real.get(), argument.get()));
    if (!form) tr.raise_current();
    return tr.global_object(form.get(), Ground::pure(this, key));
  }
  SourceId at;
  PyObject* raw =
      base && base->is(Kind::Dict) ? tr.attributes.lookup_on_type(cls, tr.intern("__getitem__"), &at) : nullptr;
  if (raw && is_c_method(raw)) {
    // dict.__getitem__ asks subclasses for what is not there.
    if (Variable* v = base->as<DictVariable>()->get(tr, key)) return v;
    if (Variable* v = special(tr, "__missing__", {key})) return v;
  }
  if (Variable* v = special(tr, "__getitem__", {key})) return v;
  return Variable::getitem(tr, key);
}

void ObjectVariable::setitem(Translator& tr, Variable* key, Variable* value) {
  if (!special(tr, "__setitem__", {key, value})) Variable::setitem(tr, key, value);
}

void ObjectVariable::delitem(Translator& tr, Variable* key) {
  if (!special(tr, "__delitem__", {key})) Variable::delitem(tr, key);
}

bool ObjectVariable::contains(Translator& tr, Variable* item) {
  if (tr.attributes.lookup_on_type(cls, tr.intern("__contains__"), nullptr) == Py_None)
    tr.raise(PyExc_TypeError, std::string("'") + tr.name_of(cls) + "' object is not a container");
  if (Variable* v = special(tr, "__contains__", {item})) return tr.truth(v);
  if (!tr.attributes.lookup_on_type(cls, tr.intern("__iter__"), nullptr) &&
      !tr.attributes.lookup_on_type(cls, tr.intern("__getitem__"), nullptr))
    tr.raise(PyExc_TypeError, std::string("argument of type '") + tr.name_of(cls) + cpython::kNoContainer);
  Variable* it = iter(tr);
  while (Variable* v = tr.next(it))
    if (tr.same_item(v, item)) return true;
  return false;
}

Variable* ObjectVariable::iter(Translator& tr) {
  SourceId at;
  if (tr.attributes.lookup_on_type(cls, tr.intern("__iter__"), &at) == Py_None) return Variable::iter(tr);
  if (Variable* v = special(tr, "__iter__", {})) {
    v = tr.force(v);
    if (!v->type()->tp_iternext ||
        (v->is(Kind::Object) && !tr.attributes.lookup_on_type(v->type(), tr.intern("__next__"), &at)))
      tr.raise(PyExc_TypeError, std::string("iter() returned non-iterator of type '") + tr.name_of(v->type()) + "'");
    return v;
  }
  if (tr.attributes.lookup_on_type(cls, tr.intern("__getitem__"), &at)) return tr.make<CallIterator>(this, nullptr);
  return Variable::iter(tr);
}

Variable* ObjectVariable::next(Translator& tr) {
  SourceId at;
  if (!tr.attributes.lookup_on_type(cls, tr.intern("__next__"), &at)) return Variable::next(tr);
  try {
    return special(tr, "__next__", {});
  } catch (PyRaise& e) {
    if (!tr.is_instance(e.exception, PyExc_StopIteration)) throw;
    return nullptr;
  }
}

std::vector<Variable*> ObjectVariable::items(Translator& tr) { return Variable::items(tr); }

bool ObjectVariable::has_len(Translator& tr) {
  SourceId at;
  return tr.attributes.lookup_on_type(cls, tr.intern("__len__"), &at) != nullptr;
}

int64_t ObjectVariable::len(Translator& tr) {
  Variable* v = special(tr, "__len__", {});
  if (!v) return Variable::len(tr);
  v = tr.force(v);
  PyObject* n = constant_of(v);
  int64_t length = n && PyLong_Check(n) ? PyLong_AsLongLong(n) : -1;
  if (length < 0) {
    PyErr_Clear();
    tr.unsupported("__len__ that does not return a size");
  }
  return length;
}

bool ObjectVariable::truth(Translator& tr) {
  if (Variable* v = special(tr, "__bool__", {})) {
    v = tr.force(v);
    if (v->type() != &PyBool_Type) tr.unsupported("__bool__ that does not return a bool");
    return tr.truth(v);
  }
  return has_len(tr) ? len(tr) != 0 : true;
}

Ref ObjectVariable::hash_key(Translator& tr) {
  SourceId at;
  PyObject* hash = tr.attributes.lookup_on_type(cls, tr.intern("__hash__"), &at);
  static PyObject* object_hash =
      native::type_attr(Ground::fixed(), &PyBaseObject_Type, PyUnicode_InternFromString("__hash__"));
  static PyObject* exception_hash = native::type_attr(
      Ground::fixed(), reinterpret_cast<PyTypeObject*>(PyExc_BaseException), PyUnicode_InternFromString("__hash__"));
  if (!hash || hash == Py_None) tr.raise(PyExc_TypeError, std::string("unhashable type: '") + tr.name_of(cls) + "'");
  static PyObject* module_hash =
      native::type_attr(Ground::fixed(), library().module, PyUnicode_InternFromString("__hash__"));
  if (hash == object_hash || hash == exception_hash || hash == module_hash) {
    if (real) {
      tr.guard_identity(source, real.get());
      return real;
    }
    if (!identity_) identity_ = make_key(tr, this, static_cast<Py_hash_t>(std::hash<void*>{}(this)));
    return identity_;
  }
  if (base && is_c_method(hash)) {
    Ref key = base->hash_key(tr);
    PyObject* eq = tr.attributes.lookup_on_type(cls, tr.intern("__eq__"), nullptr);
    return eq && is_c_method(eq) ? key : make_key(tr, this, PyObject_Hash(key.get()));
  }
  if (!PyFunction_Check(hash)) tr.unsupported("the hash of " + describe());
  return make_key(tr, this, hash_said(tr, special(tr, "__hash__", {})));
}

// Methods of object itself (and what falls through from C bases).
Variable* ObjectVariable::call_method(Translator& tr, const char* name, Args& args) {
  std::string_view n = name;
  auto attribute_name = [&](Variable* v) {
    PyObject* s = constant_of(tr.force(v));
    if (!s || !PyUnicode_Check(s)) tr.raise(PyExc_TypeError, "attribute name must be string");
    return s;
  };
  if (n == "__init__") {
    if (is_exception()) {
      if (real || (std::exchange(initialised, true) && has_fields(cls)))
        tr.unsupported(Reason::UnsupportedMutation, "an exception is initialised again");
      base = tr.tuple(args.pos);
      return tr.none();
    }
    if (args.size() || !args.kw.empty())
      tr.raise(PyExc_TypeError, "object.__init__() takes exactly one argument (the instance to initialize)");
    return tr.none();
  }
  if (n == "__getattribute__" && args.size() == 1) {
    PyObject* s = attribute_name(args[0]);
    if (Variable* v = generic_getattr(tr, s)) return v;
    tr.raise(PyExc_AttributeError, std::string("'") + tr.name_of(cls) + "' object has no attribute '" + text(s) + "'");
  }
  if (n == "__setattr__" && args.size() == 2) return generic_setattr(tr, attribute_name(args[0]), args[1]), tr.none();
  if (n == "__delattr__" && args.size() == 1) return generic_setattr(tr, attribute_name(args[0]), nullptr), tr.none();
  if (n == "__eq__" && args.size() == 1 && PyType_IsSubtype(cls, library().simple_namespace)) {
    Variable* other = tr.force(args[0]);
    if (!other->is(Kind::Object) || !PyType_IsSubtype(other->type(), library().simple_namespace))
      return tr.constant(Py_NotImplemented, Ground::fixed());
    return tr.compare(Py_EQ, instance_dict(tr), other->as<ObjectVariable>()->instance_dict(tr));
  }
  if (n == "__eq__" && args.size() == 1)
    return tr.identical(this, args[0]) ? tr.boolean(true, Ground::pure(this, args))
                                       : tr.constant(Py_NotImplemented, Ground::fixed());
  if (n == "__ne__" && args.size() == 1) {
    Variable* eq = special(tr, "__eq__", {args[0]});
    if (!eq || constant_of(tr.force(eq)) == Py_NotImplemented) return tr.constant(Py_NotImplemented, Ground::fixed());
    return tr.boolean(!tr.truth(eq), Ground::pure(this, args));
  }
  if (n == "__init_subclass__" || n == "__subclasshook__") return tr.none();
  if (n == "__str__" && args.size() == 0) {
    if (is_exception() && (like || real) && !is_plain_exception(cls)) {
      if (real) tr.unsupported("the text of " + describe());
      Ref s = Ref::steal(PyObject_Str(like.get()));
      if (!s) tr.raise_current();
      return tr.constant(s, Ground::pure(this, args));
    }
    if (is_exception() && base) {
      bool key_error = PyType_IsSubtype(cls, reinterpret_cast<PyTypeObject*>(PyExc_KeyError)) &&
                       base->as<TupleVariable>()->elements.size() == 1;
      if (key_error) return tr.format(base->as<TupleVariable>()->elements[0], "", 2);
      const auto& a = base->as<TupleVariable>()->elements;
      if (a.empty()) return tr.string("", Ground::fixed());
      if (a.size() == 1) return tr.format(a[0], "", 1);
      return tr.format(base, "", 2);
    }
    return special(tr, "__repr__", {});
  }
  if (n == "__repr__" && args.size() == 0 && is_exception() && base) {
    const char* dot = strrchr(cls->tp_name, '.');
    std::string out = dot ? dot + 1 : cls->tp_name;
    const auto& a = base->as<TupleVariable>()->elements;
    Variable* inner = tr.force(tr.format(a.size() == 1 ? a[0] : base, "", 2));
    std::string of = PyUnicode_AsUTF8(constant_of(inner));
    return tr.string(out + (a.size() == 1 ? "(" + of + ")" : of), Ground::pure(this, args));
  }
  if (n == "with_traceback" && args.size() == 1 && is_exception() && traceback_ && tr.force(args[0]) == traceback_)
    return this;
  if (n == "with_traceback" && args.size() == 1 && is_exception() && is_none(tr.force(args[0])) && !real) {
    tr.mutate();
    bare = true;
    return this;
  }
  if (n == "add_note" && args.size() == 1 && is_exception()) {
    Variable* note = tr.force(args[0]);
    if (!PyType_IsSubtype(note->type(), &PyUnicode_Type))
      tr.raise(PyExc_TypeError,
               cpython::kNoteIsArgument
                   ? "add_note() argument must be str, not " + (is_none(note) ? "None" : tr.name_of(note->type()))
                   : "note must be a str, not '" + tr.name_of(note->type()) + "'");
    Variable* notes = instance_get(tr, tr.intern("__notes__"));
    if (!notes) instance_set(tr, tr.intern("__notes__"), notes = tr.list({}));
    notes = tr.force(notes);
    if (!notes->is(Kind::List)) tr.unsupported("__notes__ that is no list");
    Args one{{note}, {}};
    notes->call_method(tr, "append", one);
    return tr.none();
  }
  return nullptr;
}

}  // namespace braze::capture
