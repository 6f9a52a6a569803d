// Calls of classes: what makes their instances.
#include <string_view>

#include "capture/builtins/builtins.h"
#include "capture/builtins/signature_errors.h"
#include "capture/cpython/class_in_c.h"
#include "capture/eval/calls.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {

bool is_plain_exception(PyTypeObject* cls) {
  cls = class_in_c(cls);
  if (cls->tp_basicsize == sizeof(PyBaseExceptionObject)) return true;
  PyObject* plain[] = {PyExc_StopIteration, PyExc_AttributeError,      PyExc_NameError, PyExc_UnboundLocalError,
                       PyExc_ImportError,   PyExc_ModuleNotFoundError, PyExc_SystemExit};
  for (PyObject* p : plain)
    if (reinterpret_cast<PyObject*>(cls) == p) return true;
  return false;
}

// tp_new of a class implemented in C.
Variable* builtin_new(Translator& tr, PyTypeObject* cls, PyObject*, Args& args) {
  const LibraryObjects& k = library();
  if (PyType_IsSubtype(cls, reinterpret_cast<PyTypeObject*>(PyExc_BaseException))) {
    // Some keep more than their arguments; Python code may take keywords in __init__.
    // An OSError or SyntaxError of one argument has no fields besides, and stays of its class.
    auto like = [&](PyObject* e) {
      return cls->tp_init == reinterpret_cast<PyTypeObject*>(e)->tp_init &&
             cls->tp_new == reinterpret_cast<PyTypeObject*>(e)->tp_new;
    };
    bool bare = args.size() < 2 && (like(PyExc_OSError) || like(PyExc_SyntaxError));
    if (!is_plain_exception(cls) && !bare)
      tr.unsupported(std::string("an exception of class ") + cls->tp_name + " is made");
    if (!args.kw.empty()) {
      PyObject* init = tr.attributes.lookup_on_type(cls, tr.intern("__init__"), nullptr);
      if (init && !PyFunction_Check(init))
        tr.unsupported(std::string("an exception of class ") + cls->tp_name + " is made with keywords");
    }
    auto* e = tr.make<ObjectVariable>(cls);
    e->base = tr.tuple(args.pos);
    return e;
  }
  if (PyType_IsSubtype(cls, &PyTuple_Type)) {
    if (is_structseq(cls)) {
      // Fields that are no items would stay as they are in a sequence of fewer items.
      static PyObject *items = PyUnicode_InternFromString("n_sequence_fields"),
                      *fields = PyUnicode_InternFromString("n_fields");
      PyObject *n = native::item(Ground::fixed(), type_dict(cls), items),
               *all = native::item(Ground::fixed(), type_dict(cls), fields);
      if (args.size() != 1 || !args.kw.empty() || !n || !all || PyObject_RichCompareBool(n, all, Py_EQ) != 1)
        tr.unsupported("a struct sequence is made");
      std::vector<Variable*> given = tr.as_sequence(args[0]);
      if (static_cast<long>(given.size()) != PyLong_AsLong(n))
        tr.unsupported(Reason::RaisedException, std::string(cls->tp_name) + "() of another length");
      return tr.make<TupleVariable>(std::move(given), cls);
    }
    bool named = !args.kw.empty() && cls->tp_init == PyTuple_Type.tp_init;
    if (named || args.size() > 1)
      tr.unsupported(Reason::RaisedException, std::string(cls->tp_name) + "() takes one iterable");
    return tr.make_tuple(cls, args.size() ? tr.listed(args[0]) : std::vector<Variable*>{});
  }
  if (!cls->tp_new) tr.unsupported(std::string("an object of class ") + cls->tp_name + " is made");
  auto* o = tr.make<ObjectVariable>(cls);
  if (cls == k.simple_namespace && args.size() == 0) {
    for (auto& [name, v] : args.kw) o->instance_set(tr, name, v);
    return o;
  }
  if (PyType_IsSubtype(cls, &PyDict_Type)) {
    if (PyType_IsSubtype(cls, k.default_dict)) tr.unsupported("a subclass of defaultdict");
    o->base = tr.make<DictVariable>(PyType_IsSubtype(cls, k.ordered_dict) ? k.ordered_dict : &PyDict_Type);
  } else if (PyType_IsSubtype(cls, &PyList_Type)) {
    o->base = tr.list({});
  } else if (PyType_IsSubtype(cls, &PySet_Type)) {
    o->base = tr.make<SetVariable>();
  }
  if (o->base) {
    o->base->owner = o;
    return o;
  }
  if (PyType_IsSubtype(cls, &PyFrozenSet_Type)) {
    bool named = !args.kw.empty() && cls->tp_init == PyFrozenSet_Type.tp_init;
    if (named || args.size() > 1)
      tr.unsupported(Reason::RaisedException, std::string(cls->tp_name) + "() takes one iterable");
    auto* content = tr.make<SetVariable>(&PyFrozenSet_Type);
    if (args.size()) content->merge(tr, args[0]);
    o->base = content;
    return o;
  }
  // Numbers and texts: the content is what the class in C makes of the arguments.
  for (PyTypeObject* c : {&PyLong_Type, &PyFloat_Type, &PyComplex_Type, &PyUnicode_Type, &PyBytes_Type})
    if (cls != c && PyType_IsSubtype(cls, c) && (cls->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
        !PyType_IsSubtype(cls, k.enum_)) {
      Args copy = args;
      o->base =
          tr.force(tr.call(tr.global_object(reinterpret_cast<PyObject*>(c), Ground::pure(args)), std::move(copy)));
      if (!o->base->is(Kind::Constant) || o->base->type() != c)
        tr.unsupported(std::string("an object of class ") + cls->tp_name + " is made");
      return o;
    }
  if (!(cls->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
      (PyType_IsSubtype(cls, &PyLong_Type) || PyType_IsSubtype(cls, &PyFloat_Type) ||
       PyType_IsSubtype(cls, &PyUnicode_Type))) {
    Args copy = args;
    return tr.real.call_pure(reinterpret_cast<PyObject*>(cls), copy);
  }
  if (!(cls->tp_flags & Py_TPFLAGS_HEAPTYPE)) raise_if_miscalled(tr, reinterpret_cast<PyObject*>(cls), nullptr, args);
  tr.unsupported(Reason::UnknownFunction, std::string("an object of class ") + cls->tp_name + " is made");
}

namespace {

// The member of an enum with this value, as its stock __call__ finds it: in its table; else what `_missing_` gives.
// nullptr: called otherwise, or refused.
Variable* member_of_value(Translator& tr, PyTypeObject* cls, Args& args) {
  auto of_enum = [](PyObject* object, const char* name) {
    return Ref::steal(native::attr(Ground::conservative(), object, name));
  };
  auto* base = reinterpret_cast<PyObject*>(library().enum_);
  PyObject* call = tr.attributes.lookup_on_type(Py_TYPE(cls), tr.intern("__call__"), nullptr);
  SourceId made_by;
  PyObject* made = tr.attributes.lookup_on_type(cls, tr.intern("__new__"), &made_by);
  bool stock = call == of_enum(reinterpret_cast<PyObject*>(Py_TYPE(base)), "__call__").get() &&
               made == of_enum(base, "__new__").get();
  PyObject* missing = tr.attributes.lookup_on_type(cls, tr.intern("_missing_"), nullptr);
  if (!stock || args.size() != 1 || !args.kw.empty() || !tr.real.is_python_constant(args[0]) ||
      tr.force(args[0])->type() == cls)
    return nullptr;
  Ref key = tr.real.to_python(args[0]);
  Ref function = missing && Py_TYPE(missing) == &PyClassMethod_Type
                     ? Ref::steal(native::attr(Ground::fixed(), missing, "__func__"))
                     : Ref();
  Ref table = of_enum(reinterpret_cast<PyObject*>(cls), "_value2member_map_");
  bool known = key && table && PyDict_Check(table.get()) && PyDict_Contains(table.get(), key.get()) == 1;
  PyErr_Clear();  // what cannot be hashed
  if (!known && function && !of_library(function.get())) {
    args.pos.insert(args.pos.begin(), tr.global_object(reinterpret_cast<PyObject*>(cls), Ground::pure(args)));
    return made_by.valid() ? tr.call(tr.wrap(made, made_by), args) : nullptr;
  }
  // The library's own enters what it makes into the table, so that it is there when the guards are checked.
  if (!known && key && !Ref::steal(PyObject_CallOneArg(reinterpret_cast<PyObject*>(cls), key.get()))) PyErr_Clear();
  return enum_member(tr, cls, "_value2member_map_", args[0]);
}

}  // namespace

Variable* instantiate(Translator& tr, PyTypeObject* cls, Args& args) {
  auto* cls_object = reinterpret_cast<PyObject*>(cls);
  PyTypeObject* meta = Py_TYPE(cls);
  if (meta != &PyType_Type) {
    SourceId at;
    PyObject* call_method = tr.attributes.lookup_on_type(meta, tr.intern("__call__"), &at);
    if (PyType_IsSubtype(meta, Py_TYPE(library().enum_))) {
      if (Variable* member = member_of_value(tr, cls, args)) return member;
      return tr.real.call_pure(cls_object, args);
    }
    if (call_method && PyFunction_Check(call_method)) {
      args.pos.insert(args.pos.begin(), tr.global_object(cls_object, Ground::pure(args)));
      return tr.call(tr.force(tr.wrap(call_method, at)), args);
    }
    if (call_method && PyType_Check(call_method))
      return tr.call(at.valid() ? tr.wrap(call_method, at) : tr.global_object(call_method, Ground::pure(args)), args);
  }
  return type_call(tr, cls, args);
}

Variable* type_call(Translator& tr, PyTypeObject* cls, Args& args) {
  auto* cls_object = reinterpret_cast<PyObject*>(cls);
  if (PyType_IsSubtype(cls, library().tensor))
    tr.unsupported(Reason::UnsupportedTensor, std::string("a tensor of class ") + cls->tp_name + " is made");
  if (PyType_IsSubtype(cls, &PyType_Type)) tr.unsupported("a class is made");
  if (PyType_IsSubtype(cls, &PyProperty_Type) && args.kw.empty() && args.size() == 1 &&
      tr.force(args[0])->is(Kind::Function)) {
    // PyTorch's own properties hold a function and nothing else: one is as good as another.
    Ref module = Ref::steal(native::attr(Ground::fixed(), cls_object, "__module__"));
    const char* text = module && PyUnicode_Check(module.get()) ? PyUnicode_AsUTF8(module.get()) : "";
    PyObject* wrapped = args[0]->as<FunctionVariable>()->real.get();
    if (wrapped && std::string_view(text).starts_with("torch.")) {
      tr.guard_identity(args[0]->source, wrapped);
      Ref made = Ref::steal(PyObject_CallOneArg(cls_object, wrapped));
      if (!made) tr.raise_current();
      return tr.global_object(tr.keep(made), Ground::pure(args));
    }
  }
  if (cls->tp_flags & Py_TPFLAGS_IS_ABSTRACT) {  // said by the interpreter itself
    Ref empty = Ref::steal(PyTuple_New(0)), refused = Ref::steal(PyBaseObject_Type.tp_new(cls, empty.get(), nullptr));
    if (!refused) tr.raise_current();
  }
  if (is_constant_type(cls) && !(cls->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
      std::string_view(cls->tp_name).starts_with("numpy."))
    return tr.real.call_pure(cls_object, args);
  if (!cls->tp_new) tr.raise(PyExc_TypeError, std::string("cannot create '") + tr.name_of(cls) + "' instances");
  SourceId new_at, init_at;
  PyObject* make_new = tr.attributes.lookup_on_type(cls, tr.intern("__new__"), &new_at);
  Variable* made;
  if (tr.attributes.lookup_on_type(cls, tr.intern("__del__"), nullptr))
    tr.unsupported(std::string("an object of class ") + cls->tp_name + ", which has a finalizer, is made");
  if (make_new && PyCFunction_Check(make_new) && PyCFunction_GET_SELF(make_new) &&
      PyType_Check(PyCFunction_GET_SELF(make_new))) {
    // The __new__ of a class that decides how objects are laid out, and no other.
    PyTypeObject* layout = class_in_c(cls);
    auto* of = reinterpret_cast<PyTypeObject*>(PyCFunction_GET_SELF(make_new));
    if (!PyType_IsSubtype(cls, of) || (layout->tp_new != of->tp_new && !PyType_IsSubtype(of, layout)))
      tr.unsupported(Reason::RaisedException,
                     std::string(of->tp_name) + ".__new__ makes an object of class " + cls->tp_name);
  }
  if (make_new == library().object_new || !make_new) {
    made = tr.make<ObjectVariable>(cls, PyType_IsSubtype(cls, library().module) ? Kind::Module : Kind::Object);
  } else if (PyCFunction_Check(make_new)) {
    made = builtin_new(tr, cls, make_new, args);
  } else {
    Args with_class = args;
    with_class.pos.insert(with_class.pos.begin(), tr.global_object(cls_object, Ground::pure(args)));
    // Found through the class, so that what would bind to an instance stays as it is.
    bool binds_to_instances = PyFunction_Check(make_new) || Py_TYPE(make_new) == library().lru_cache;
    Variable* fn =
        binds_to_instances && new_at.valid()
            ? tr.wrap(make_new, new_at)
            : tr.attributes.bind_descriptor(make_new, new_at, tr.global_object(cls_object, Ground::pure(args)), cls,
                                            tr.intern("__new__"));
    made = tr.force(tr.call(fn, with_class));
  }
  if (!PyType_IsSubtype(made->type(), cls)) return made;
  PyObject* init = tr.attributes.lookup_on_type(made->type(), tr.intern("__init__"), &init_at);
  if (!init || init == library().object_init) {
    if (make_new == library().object_new && (args.size() || !args.kw.empty()))
      tr.raise(PyExc_TypeError, std::string(tr.name_of(cls)) + "() takes no arguments");
    return made;
  }
  if (Py_TYPE(init) == &PyWrapperDescr_Type) {
    if ((!made->is(Kind::Object) && !made->is(Kind::Module)) || cls == library().simple_namespace) return made;
    call_builtin_method(tr, made, reinterpret_cast<PyDescrObject*>(init)->d_type, tr.intern("__init__"), args);
  } else {
    Variable* r = tr.force(
        tr.call(tr.attributes.bind_descriptor(init, init_at, made, made->type(), tr.intern("__init__")), args));
    if (!is_none(r))
      tr.raise(PyExc_TypeError, std::string("__init__() should return None, not '") + tr.name_of(r->type()) + "'");
  }
  return made;
}

}  // namespace braze::capture
