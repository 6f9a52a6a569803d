// Built-in functions on any object: types, attributes, frames.
#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

PyObject* attribute_name(Translator& tr, Variable* v) {
  PyObject* s = constant_of(tr.force(v));
  if (!s || !PyUnicode_Check(s))
    tr.raise(PyExc_TypeError, std::string("attribute name must be string, not '") + tr.name_of(v->type()) + "'");
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

// The second operand of isinstance() may hold classes made of anything that stands for a class: also Sequence,
// Mapping... of typing.
Ref class_argument(Translator& tr, Variable* v) {
  v = tr.force(v);
  if (v->is(Kind::Tuple)) {
    const auto& elements = v->as<TupleVariable>()->elements;
    Ref t = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(elements.size())));
    for (size_t i = 0; i < elements.size(); ++i)
      PyTuple_SET_ITEM(t.get(), static_cast<Py_ssize_t>(i), class_argument(tr, elements[i]).release());
    return t;
  }
  if (auto* o = v->is(Kind::Object) ? v->as<ObjectVariable>() : nullptr;
      o && o->real &&
      (std::string_view(v->type()->tp_name) == "_SpecialGenericAlias" ||
       std::string_view(v->type()->tp_name) == "_UnionGenericAlias")) {
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
  return tr.boolean(tr.is_subclass(c.get(), of.get()), Ground::pure(a));
}

// type.__instancecheck__(cls, object): without what a metaclass of cls says.
Variable* do_type_instancecheck(Translator& tr, Args& a) {
  PyObject* cls = a.size() == 2 ? a[0]->as_constant() : nullptr;
  if (!cls || !PyType_Check(cls)) return nullptr;
  return tr.boolean(PyType_IsSubtype(tr.force(a[1])->type(), reinterpret_cast<PyTypeObject*>(cls)), Ground::pure(a));
}

Variable* do_callable(Translator& tr, Args& a) {
  if (a.size() != 1) return nullptr;
  switch (a[0]->kind) {
    case Kind::Function:
    case Kind::BoundMethod:
    case Kind::BuiltinMethod:
    case Kind::Partial:
    case Kind::Module: return tr.boolean(true, Ground::pure(a));
    case Kind::Object:
      return tr.boolean(tr.attributes.lookup_on_type(a[0]->type(), tr.intern("__call__"), nullptr) != nullptr,
                        Ground::pure(a));
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
      if (PyUnicode_CompareWithASCIIString(f->code->local_name(i), "__class__") == 0 &&
          f->locals[static_cast<size_t>(i)]) {
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
  bool through_class =
      s && PyType_Check(s) && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(s), reinterpret_cast<PyTypeObject*>(c));
  if (!through_class && !PyType_IsSubtype(self->type(), reinterpret_cast<PyTypeObject*>(c))) return nullptr;
  return tr.make<SuperVariable>(reinterpret_cast<PyTypeObject*>(c), self);
}

Variable* do_id(Translator& tr, Args& a) {
  tr.segment().here_only = "an address";
  if (a.size() != 1) return nullptr;
  // Of something that was there before, and that is then held to be the same object.
  PyObject* real = nullptr;
  if (a[0]->is(Kind::Function)) real = a[0]->as<FunctionVariable>()->real.get();
  if (a[0]->is(Kind::Object) || a[0]->is(Kind::Module)) real = a[0]->as<ObjectVariable>()->real.get();
  if (a[0]->is(Kind::Real)) real = a[0]->as_constant();
  if (a[0]->is(Kind::List)) real = a[0]->as<ListVariable>()->real.get();
  if (a[0]->is(Kind::Dict)) real = a[0]->as<DictVariable>()->real.get();
  if (a[0]->is(Kind::Tensor)) real = a[0]->as<TensorVariable>()->real.get();
  // An instance that can only be held, not watched, would live as long as the entry.
  bool held = a[0]->is(Kind::Object) && !PyType_SUPPORTS_WEAKREFS(a[0]->type());
  if (!real || held) tr.unsupported("id() of " + a[0]->describe());
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
  if ((a.size() > 1 || !a.kw.empty()) &&
      (tr.attributes.lookup_on_type(cls, tr.intern("__new__"), nullptr) != library().object_new ||
       tr.attributes.lookup_on_type(cls, tr.intern("__init__"), nullptr) == library().object_init))
    return nullptr;  // an error
  if (cls->tp_flags & Py_TPFLAGS_IS_ABSTRACT || tr.attributes.lookup_on_type(cls, tr.intern("__del__"), nullptr))
    return nullptr;
  return tr.make<ObjectVariable>(cls);
}

Variable* do_tuple_new(Translator& tr, Args& a) {
  if (a.size() < 1 || a.size() > 2) return nullptr;
  PyObject* c = a[0]->as_constant();
  if (!c || !PyType_Check(c)) return nullptr;
  return tr.make_tuple(reinterpret_cast<PyTypeObject*>(c), a.size() == 2 ? tr.listed(a[1]) : std::vector<Variable*>{});
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
  return tr.tuple(
      {tr.global_object(reinterpret_cast<PyObject*>(e->type()), Ground::pure(a)), e, tr.getattr(e, "__traceback__")});
}

Variable* do_globals(Translator& tr, Args&) { return tr.globals_dict(*tr.frame()); }

Variable* do_locals(Translator& tr, Args& a) {
  Frame* f = tr.frame();
  if (a.size() || !(f->code->code->co_flags & CO_OPTIMIZED)) return nullptr;
  auto* d = tr.dict();
  const bool resumed = tr.view().start > 0 && !f->parent;
  for (int i = 0; i < f->code->num_locals_plus; ++i) {
    Variable* v = f->locals[static_cast<size_t>(i)];
    // Variables that the code does not read again are in it, too.
    if (const SourceId at = tr.sources().local(i); resumed && !tr.view().slots[i])
      tr.guards().absent(at, tr.line());
    else if (resumed && v && v->source == at)
      tr.guards().exists(at, tr.line());
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

Variable* do_cast(Translator&, Args& a) { return a.size() == 2 ? a.pos[1] : nullptr; }

}  // namespace

void register_object_builtins() {
  const BuiltinRow rows[] = {{"len", do_len},
                             {"isinstance", do_isinstance},
                             {"issubclass", do_issubclass},
                             {"callable", do_callable},
                             {"getattr", do_getattr},
                             {"hasattr", do_hasattr},
                             {"setattr", do_setattr},
                             {"delattr", do_delattr},
                             {"vars", do_vars},
                             {"super", do_super},
                             {"id", do_id},
                             {"globals", do_globals},
                             {"locals", do_locals}};
  for (const BuiltinRow& r : rows) register_builtin("builtins", r.name, r.handler);
  register_builtin(library().object_new, do_object_new);
  register_builtin("builtins", "tuple.__new__", do_tuple_new);
  register_builtin("builtins", "type.__instancecheck__", do_type_instancecheck);
  register_builtin("importlib", "import_module", do_import_module);
  register_builtin("types", "MethodType", do_method);
  register_builtin("sys", "exc_info", do_exc_info);
  register_builtin("sys", "exception", do_exception);
  register_builtin("typing", "cast", do_cast);
  for (const char* n : {"len", "isinstance", "issubclass", "type", "callable", "getattr", "hasattr", "setattr",
                        "delattr", "vars", "super", "id", "globals"})
    register_no_keywords("builtins", n);
}

}  // namespace braze::capture
