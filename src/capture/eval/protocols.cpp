// Python's protocols on variables: attributes, calls, identity, items, classes, texts.
#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "capture/cpython/frame.h"
#include "capture/cpython/imported.h"
#include "capture/eval/calls.h"
#include "capture/eval/index_protocol.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/operands.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

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
    case Kind::BoundMethod: return v->as<BoundMethodVariable>()->real.get();
    case Kind::Partial: return v->as<PartialVariable>()->real.get();
    default: return nullptr;
  }
}

// One level of tuples in tuples of classes, against Python's limit of recursion.
struct Level {
  Level(Translator& tr, const char* where) {
    if (Py_EnterRecursiveCall(where)) tr.raise_current();
  }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  ~Level() { Py_LeaveRecursiveCall(); }
};

// Whether every object of this class with this value is the same object.
bool one_per_value(PyObject* o) {
  PyTypeObject* t = Py_TYPE(o);
  if (t == &PyLong_Type) {
    int overflow = 0;
    long long n = PyLong_AsLongLongAndOverflow(o, &overflow);
    return !overflow && n >= -5 && n <= 256;  // CPython's small integers
  }
  if (o == Py_None || o == Py_Ellipsis || o == Py_NotImplemented || t == &PyBool_Type) return true;
  const LibraryObjects& k = library();
  return t == k.dtype || t == k.layout || t == k.memory_format || t == k.qscheme;
}

// Whether an object has what a runtime-checkable protocol of module typing asks for. -1: the class is none, or that is
// not known.
int has_protocol(Translator& tr, Variable* v, PyObject* cls) {
  static PyObject* members_of = [] {
    Ref m = Ref::steal(PyImport_ImportModule("typing"));
    PyObject* f = native::attr(Ground::fixed(), m.get(), "_get_protocol_attrs");
    PyErr_Clear();
    return f;
  }();
  auto flag = [&](const char* name) {
    PyObject* f = tr.attributes.lookup_on_type(reinterpret_cast<PyTypeObject*>(cls), tr.intern(name), nullptr);
    return f == Py_True;
  };
  if (!members_of || !flag("_is_protocol") || !flag("_is_runtime_protocol")) return -1;
  if (PyType_IsSubtype(v->type(), reinterpret_cast<PyTypeObject*>(cls))) return 1;
  Ref members = Ref::steal(PyObject_CallOneArg(members_of, cls)),
      sorted = members ? Ref::steal(PySequence_List(members.get())) : Ref();
  if (!sorted || PyList_Sort(sorted.get()) < 0) return PyErr_Clear(), -1;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(sorted.get()); ++i) {
    PyObject* name = tr.intern(PyUnicode_AsUTF8(PyList_GET_ITEM(sorted.get(), i)));
    Variable* own = tr.getattr_or_null(v, name);
    PyObject* of_class = tr.attributes.lookup_on_type(reinterpret_cast<PyTypeObject*>(cls), name, nullptr);
    if (own && !(of_class && PyCallable_Check(of_class) && is_none(tr.force(own)))) continue;
    // It may be registered.
    static PyObject* subclass =
        native::attr(Ground::fixed(), reinterpret_cast<PyObject*>(library().abc_meta), "__subclasscheck__");
    Ref r = Ref::steal(PyObject_CallFunctionObjArgs(subclass, cls, v->type(), nullptr));
    if (!r) PyErr_Clear();
    return r ? r.get() == Py_True : -1;
  }
  return 1;
}

}  // namespace

Variable* Protocols::getattr_or_null(Variable* v, PyObject* name) {
  v = tr_.force(v);
  try {
    Variable* r = v->getattr(tr_, name);
    return r ? r : nullptr;
  } catch (PyRaise& e) {
    if (!is_instance(e.exception, PyExc_AttributeError)) throw;
    return nullptr;
  }
}

Variable* Protocols::getattr(Variable* v, PyObject* name) {
  v = tr_.force(v);
  if (Variable* r = v->getattr(tr_, name)) return r;
  PyObject* o = v->as_constant();
  std::string n = PyUnicode_AsUTF8(name);
  if (o && PyType_Check(o))
    tr_.raise(PyExc_AttributeError, std::string("type object '") + tr_.name_of(reinterpret_cast<PyTypeObject*>(o)) +
                                        "' has no attribute '" + n + "'");
  if (o && PyModule_Check(o)) {
    Variable* named = v->getattr(tr_, tr_.intern("__name__"));
    PyObject* text = named ? constant_of(tr_.force(named)) : nullptr;
    if (!text || !PyUnicode_Check(text)) tr_.unsupported("a missing attribute of a module without a name");
    tr_.raise(PyExc_AttributeError,
              std::string("module '") + PyUnicode_AsUTF8(text) + "' has no attribute '" + n + "'");
  }
  // A method passes on what it is asked for to its function.
  PyTypeObject* t = v->is(Kind::BoundMethod) ? tr_.force(v->as<BoundMethodVariable>()->function)->type() : v->type();
  std::string type_name = t->tp_flags & Py_TPFLAGS_HEAPTYPE ? tr_.name_of(t) : t->tp_name;
  if (v->is(Kind::Object))
    if (PyObject* d = tr_.attributes.lookup_on_type(t, name, nullptr); d && Py_TYPE(d) == &PyMemberDescr_Type)
      type_name = tr_.name_of_owner(t);
  if (v->is(Kind::Tensor)) type_name.erase(0, type_name.rfind('.') + 1);
  tr_.raise(PyExc_AttributeError, "'" + type_name + "' object has no attribute '" + n + "'");
}

void Protocols::setattr(Variable* v, PyObject* name, Variable* value) { tr_.force(v)->setattr(tr_, name, value); }

Variable* Protocols::getattr(Variable* v, const char* name) { return getattr(v, tr_.intern(name)); }
Variable* Protocols::getattr_or_null(Variable* v, const char* name) { return getattr_or_null(v, tr_.intern(name)); }
Variable* Protocols::next(Variable* iterator) { return tr_.force(iterator)->next(tr_); }
int64_t Protocols::len(Variable* v) { return tr_.force(v)->len(tr_); }

Variable* Protocols::call(Variable* callee, Args args, bool resumable) {
  // What would be deeper than the interpreter allows is its to refuse.
  if (++depth_ > std::min(900, cpython::recursion_left() - 50)) {
    depth_ = 0;
    tr_.unsupported("a recursion that is deep");
  }
  tr_.check_stack();
  struct Leave {
    int& d;
    ~Leave() { --d; }
  } leave{depth_};
  for (int i = 0;; ++i) {
    if (i > 900) tr_.unsupported("a call of a call of a call...");
    callee = tr_.force(callee);
    switch (callee->kind) {
      case Kind::Function: return inline_function(tr_, callee->as<FunctionVariable>(), args, resumable);
      case Kind::BoundMethod: {
        auto* m = callee->as<BoundMethodVariable>();
        args.pos.insert(args.pos.begin(), m->self);
        callee = m->function;
        continue;
      }
      case Kind::Partial:
        callee->as<PartialVariable>()->merge(tr_, args);
        callee = callee->as<PartialVariable>()->function;
        continue;
      case Kind::Module: callee = module_call_target(tr_, callee->as<ObjectVariable>()); continue;
      case Kind::Object: {
        SourceId at;
        PyObject* f = tr_.attributes.lookup_on_type(callee->type(), tr_.intern("__call__"), &at);
        if (!f) tr_.raise(PyExc_TypeError, std::string("'") + tr_.name_of(callee->type()) + "' object is not callable");
        callee = tr_.attributes.bind_descriptor(f, at, callee, callee->type(), tr_.intern("__call__"));
        continue;
      }
      default: return callee->call(tr_, args);
    }
  }
}

Variable* Protocols::call_method(Variable* self, const char* name, std::vector<Variable*> pos) {
  return call(getattr(self, tr_.intern(name)), Args{std::move(pos), {}});
}

bool Protocols::identical(Variable* a, Variable* b) {
  a = tr_.force(a);
  b = tr_.force(b);
  if (a == b) return true;
  const SourceId at = a->source, bt = b->source;  // also of the numbers that are open, which lose them below
  // Small ints and the bools are one object each.
  if ((a->is(Kind::Sym) || b->is(Kind::Sym)) && a->type() == b->type()) {
    a = tr_.real.specialised(a);
    b = tr_.real.specialised(b);
  }
  auto object_of = [&](Variable* v, SourceId source) {
    PyObject* met = source.valid() ? tr_.wrapped_at(source) : nullptr;
    return met ? met : real_of(v);
  };
  PyObject *ra = object_of(a, at), *rb = object_of(b, bt);
  // The one that is made here may be the one that is there already.
  if ((a->is(Kind::Weakref) && rb && PyWeakref_Check(rb)) || (b->is(Kind::Weakref) && ra && PyWeakref_Check(ra)))
    tr_.unsupported("whether two weak references are one");
  if (!ra || !rb) return false;
  bool same = ra == rb;
  // What the guards on a constant's value or a class say decides it.
  if (Py_TYPE(ra) != Py_TYPE(rb) || one_per_value(ra) || one_per_value(rb)) return same;
  SourceId known = at.valid() ? at : bt;
  if (!known.valid()) return same;
  if (at.valid() && bt.valid()) {
    if (same)
      tr_.guards().same_object(at, bt, tr_.line());
    else
      tr_.guards().distinct(at, bt, tr_.line());
  } else if (same) {
    tr_.guard_identity(known, ra);
  } else {
    tr_.guards().distinct(known, tr_.sources().constant(at.valid() ? rb : ra), tr_.line());
  }
  return same;
}

bool Protocols::same_item(Variable* a, Variable* b) {
  a = tr_.force(a);
  b = tr_.force(b);
  // Equal constants of one object or two are the same to a container, but for NaN and what a class of the program's
  // says.
  auto reflexive = [](Variable* v) {
    return v->is(Kind::Constant) && !user_class(v) && !PyFloat_Check(constant_of(v)) &&
           !PyComplex_Check(constant_of(v));
  };
  return (!(reflexive(a) && reflexive(b)) && identical(a, b)) || equal(a, b);
}

Variable* Protocols::getitem(Variable* v, Variable* key, bool) {
  v = tr_.force(v);
  return v->getitem(tr_, as_key(tr_, v, key));
}

void Protocols::setitem(Variable* v, Variable* key, Variable* value) {
  v = tr_.force(v);
  v->setitem(tr_, as_key(tr_, v, key), value);
}
void Protocols::delitem(Variable* v, Variable* key) {
  v = tr_.force(v);
  v->delitem(tr_, as_key(tr_, v, key));
}
bool Protocols::contains(Variable* v, Variable* item) { return tr_.force(v)->contains(tr_, tr_.force(item)); }
Variable* Protocols::iter(Variable* v) { return tr_.force(v)->iter(tr_); }
std::vector<Variable*> Protocols::unpack(Variable* v) { return tr_.force(v)->items(tr_); }

namespace {

constexpr const char* kLengthMethods[] = {"__len__", "__length_hint__"};

// Whose methods of the program say how long it is: the object itself, or the one that an iterator asks for its items by
// number. nullptr: nobody's.
ObjectVariable* tells_length(Translator& tr, Variable* v) {
  if (v->is(Kind::Iterator)) {
    auto* by_number = dynamic_cast<CallIterator*>(v);
    if (!by_number || by_number->sentinel || by_number->done) return nullptr;
    v = tr.force(by_number->fn);
  }
  if (!v->is(Kind::Object)) return nullptr;
  for (const char* name : kLengthMethods)
    if (PyObject* method = tr.attributes.lookup_on_type(v->type(), tr.intern(name), nullptr))
      return PyFunction_Check(method) ? v->as<ObjectVariable>() : nullptr;
  return nullptr;
}

}  // namespace

void Protocols::ask_length(Variable* v) {
  v = tr_.force(v);
  ObjectVariable* teller = tells_length(tr_, v);
  if (!teller) return;
  for (std::string_view name : kLengthMethods) {
    SourceId at;
    PyObject* method = tr_.attributes.lookup_on_type(teller->type(), tr_.intern(name.data()), &at);
    if (!method) continue;
    if (!PyFunction_Check(method)) return;
    const bool is_hint = name == "__length_hint__";
    if (v != teller && is_hint) return;  // iterators by number ask for the length alone
    Variable* n;
    try {
      n = tr_.force(
          tr_.call(tr_.attributes.bind_descriptor(method, at, teller, teller->type(), tr_.intern(name.data())),
                   std::vector<Variable*>{}));
    } catch (PyRaise& e) {
      if (!tr_.is_instance(e.exception, PyExc_TypeError)) throw;
      continue;
    }
    PyObject* c = constant_of(n);
    if (c == Py_NotImplemented && is_hint) return;
    bool size = c && PyLong_Check(c) && PyLong_AsSsize_t(c) >= 0;
    PyErr_Clear();
    if (!size) tr_.unsupported(std::string(name) + " that does not return a size");
    return;
  }
}

std::vector<Variable*> Protocols::listed(Variable* v) {
  v = tr_.force(v);
  if (!tells_length(tr_, v)) return unpack(v);
  Variable* it = iter(v);  // comes first
  ask_length(v);
  return rest(it);
}

std::vector<Variable*> Protocols::rest(Variable* iterator) {
  std::vector<Variable*> out;
  while (Variable* v = tr_.next(iterator)) {
    out.push_back(v);
    if (out.size() > 1000000) tr_.unsupported("an iteration of more than a million steps");
  }
  return out;
}

std::vector<Variable*> Protocols::as_sequence(Variable* v) {
  v = tr_.force(v);
  return v->is(Kind::Object) || v->is(Kind::Iterator) ? listed(iter(v)) : unpack(v);
}

bool Protocols::is_subclass(PyObject* derived, PyObject* cls) {
  if (PyType_Check(derived)) tr_.attributes.guard_bases(reinterpret_cast<PyTypeObject*>(derived));
  if (PyType_Check(cls) && has_own(tr_, Py_TYPE(cls), "__subclasscheck__"))
    tr_.unsupported(std::string("a subclass of ") + reinterpret_cast<PyTypeObject*>(cls)->tp_name +
                    ", whose metaclass has a __subclasscheck__");
  if (PyTuple_Check(cls)) {
    Level level(tr_, " in __subclasscheck__");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cls); ++i)
      if (is_subclass(derived, PyTuple_GET_ITEM(cls, i))) return true;
    return false;
  }
  int r = native::is_subclass(Ground::process(ProcessState::Registrations), derived, cls);
  if (r < 0) tr_.raise_current();
  if (r == 1) return true;
  if (PyType_Check(cls)) return guard_registrations(cls), false;
  // Of a tuple or union of classes: as for each of them.
  Ref classes = PyTuple_Check(cls) ? Ref::borrow(cls) : Ref::steal(native::attr(Ground::fixed(), cls, "__args__"));
  PyErr_Clear();
  for (Py_ssize_t i = 0; classes && PyTuple_Check(classes.get()) && i < PyTuple_GET_SIZE(classes.get()); ++i)
    guard_registrations(PyTuple_GET_ITEM(classes.get(), i));
  return false;
}

void Protocols::guard_registrations(PyObject* cls) {
  if (!PyType_IsSubtype(Py_TYPE(cls), library().abc_meta)) return;
  static PyObject* token = imported("_abc", "get_cache_token");
  Ref now = Ref::steal(PyObject_CallNoArgs(token));
  if (!now) tr_.raise_current();
  tr_.real.guard_answer(token, {}, now.get());
}

bool Protocols::is_instance(Variable* v, PyObject* cls) {
  v = tr_.force(v);
  if (PyTuple_Check(cls)) {
    Level level(tr_, " in __instancecheck__");
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(cls); ++i)
      if (is_instance(v, PyTuple_GET_ITEM(cls, i))) return true;
    return false;
  }
  if (Py_TYPE(cls) == union_type() || std::string_view(Py_TYPE(cls)->tp_name) == "_UnionGenericAlias") {
    Ref args = Ref::steal(native::attr(Ground::fixed(), cls, "__args__"));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.get()); ++i) {
      PyObject* c = PyTuple_GET_ITEM(args.get(), i);
      if (is_instance(v, c == Py_None ? reinterpret_cast<PyObject*>(Py_TYPE(Py_None)) : c)) return true;
    }
    return false;
  }
  if (Py_TYPE(cls) == library().legacy_tensor_class) {  // torch.FloatTensor and the like: a device and a dtype
    if (!v->is(Kind::Tensor)) return false;
    Variable* type = tr_.force(
        tr_.real.query_torch(native::type_attr(Ground::fixed(), library().tensor, tr_.intern("type")), Args{{v}, {}}));
    Ref module = Ref::steal(native::attr(Ground::fixed(), cls, "__module__")),
        name = Ref::steal(native::attr(Ground::fixed(), cls, "__name__"));
    Ref full = Ref::steal(module && name ? PyUnicode_FromFormat("%U.%U", module.get(), name.get()) : nullptr);
    if (!full) tr_.raise_current();
    return PyObject_RichCompareBool(type->as_constant(), full.get(), Py_EQ) == 1;
  }
  if (std::string_view(Py_TYPE(cls)->tp_name) == "_SpecialGenericAlias") {  // Sequence, Mapping... of module typing
    Ref origin = Ref::steal(native::attr(Ground::fixed(), cls, "__origin__"));
    if (!origin) tr_.raise_current();
    return is_instance(v, origin.get());
  }
  if (!PyType_Check(cls)) tr_.raise(PyExc_TypeError, "isinstance() arg 2 must be a type, a tuple of types, or a union");
  if (v->type() == reinterpret_cast<PyTypeObject*>(cls)) return true;
  if (std::string_view(Py_TYPE(cls)->tp_name) == "_ProtocolMeta" &&
      std::string_view(reinterpret_cast<PyTypeObject*>(cls)->tp_name) != "Protocol")
    if (int has = has_protocol(tr_, v, cls); has >= 0) return has;
  static PyObject* abc =
      native::type_attr(Ground::fixed(), library().abc_meta, PyUnicode_InternFromString("__instancecheck__"));
  static PyObject* parameter =
      native::type_attr(Ground::fixed(), Py_TYPE(library().parameter), PyUnicode_InternFromString("__instancecheck__"));
  PyObject* check = nullptr;
  if (PyTypeObject* meta = Py_TYPE(cls); meta != &PyType_Type && !PyType_IsSubtype(meta, Py_TYPE(library().tensor))) {
    SourceId at;
    check = tr_.attributes.lookup_on_type(meta, tr_.intern("__instancecheck__"), &at);
    if (check && PyFunction_Check(check) && check != abc && check != parameter)
      return truth(call(tr_.attributes.bind_descriptor(check, at, tr_.global_object(cls, Ground::pure(v)), meta,
                                                       tr_.intern("__instancecheck__")),
                        {v}));
  }
  tr_.attributes.guard_bases(v->type());
  if (PyType_IsSubtype(v->type(), reinterpret_cast<PyTypeObject*>(cls)))
    return check != abc ||
           is_subclass(reinterpret_cast<PyObject*>(v->type()), cls);  // an ABC remembers what it was asked
  // The class that the object says it is of.
  PyObject* said = nullptr;
  PyObject* of = tr_.attributes.lookup_on_type(v->type(), tr_.intern("__class__"), nullptr);
  bool own_access = v->is(Kind::Object) && !tr_.attributes.type_info(v->type()).generic &&
                    PyFunction_Check(tr_.attributes.type_info(v->type()).getattribute);
  if (own_access || of != native::type_attr(Ground::fixed(), &PyBaseObject_Type, tr_.intern("__class__"))) {
    if (!v->is(Kind::Object)) tr_.unsupported("isinstance() of an object that says itself what its class is");
    said = tr_.force(getattr(v, "__class__"))->as_constant();
    if (said && !PyType_Check(said)) said = nullptr;
    if (said && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(said), reinterpret_cast<PyTypeObject*>(cls)))
      return true;
  }
  bool own_getattr = (v->type()->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
                     v->type()->tp_getattro != PyObject_GenericGetAttr;  // may lie about __class__
  if (v->is(Kind::Real) && !PyType_Check(v->as_constant()) && own_getattr && !PyModule_Check(v->as_constant()))
    tr_.unsupported("isinstance() of " + v->describe());
  if (Py_TYPE(cls) == &PyType_Type) return false;
  // The class decides. Tensors and constants are asked as they are; for the rest an ABC looks at the class only.
  if (v->is(Kind::Tensor)) {
    auto* t = v->as<TensorVariable>();
    int r = native::is_instance(Ground::pure(v), t->real ? t->real.get() : t->value(tr_), cls);
    if (r < 0) tr_.raise_current();
    return r == 1;
  }
  if (PyObject* o = v->as_constant()) {
    int r = native::is_instance(Ground::process(ProcessState::Registrations), o, cls);
    if (r < 0) tr_.raise_current();
    if (r == 0) guard_registrations(cls);
    return r == 1;
  }
  check = tr_.attributes.lookup_on_type(Py_TYPE(cls), tr_.intern("__instancecheck__"), nullptr);
  static PyObject* plain =
      native::type_attr(Ground::fixed(), &PyType_Type, PyUnicode_InternFromString("__instancecheck__"));
  if (check == plain || check == parameter) return false;
  if (PyObject_TypeCheck(cls, Py_TYPE(library().tensor)) && !PyType_IsSubtype(v->type(), library().tensor))
    return false;
  if (check == abc || !check)
    return (said && is_subclass(said, cls)) || is_subclass(reinterpret_cast<PyObject*>(v->type()), cls);
  tr_.unsupported(std::string("isinstance with class ") + reinterpret_cast<PyTypeObject*>(cls)->tp_name +
                  ", which decides by itself");
}

// What the text of a real object tells that its identity does not say.
static void guard_text(Translator& tr, Variable* v) {
  PyObject* o = v->as_constant();
  if (PyWeakref_Check(o)) tr.unsupported("the text of a weak reference");
  if (!PyType_Check(o) || is_fixed_type(reinterpret_cast<PyTypeObject*>(o))) return;
  for (const char* made_by : {"__repr__", "__str__", "__format__"}) {
    PyObject* f = tr.attributes.lookup_on_type(Py_TYPE(o), tr.intern(made_by), nullptr);
    if (f && PyFunction_Check(f)) tr.unsupported("the text of a class whose class makes it");
  }
  for (const char* part : {"__qualname__", "__module__"}) tr.force(tr.getattr(v, part));
}

bool Protocols::can_iterate(Variable* v) {
  v = tr_.force(v);
  PyTypeObject* t = v->type();
  if (t->tp_iter || (t->tp_as_sequence && t->tp_as_sequence->sq_item)) return true;
  for (const char* method : {"__iter__", "__getitem__"})
    if (tr_.attributes.lookup_on_type(t, tr_.intern(method), nullptr)) return true;
  return false;
}

std::string Protocols::text_of_callee(Variable* callee) {
  auto text_of = [&](const char* name) {
    Variable* v = getattr_or_null(callee, name);
    PyObject* text = v ? constant_of(tr_.force(v)) : nullptr;
    return std::string(text && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : "");
  };
  callee = tr_.force(callee);
  const std::string name = text_of("__qualname__"), module = text_of("__module__");
  if (name.empty()) tr_.unsupported(Reason::RaisedException, "a call of " + callee->describe());
  return (module.empty() || module == "builtins" ? "" : module + ".") + name + "()";
}

// Containers of the library's that are told by their class and by constants.
bool Protocols::is_container_of_constants(Variable* v) {
  const LibraryObjects& k = library();
  if (v->type() == k.deque) return v->is(Kind::List) && tr_.real.holds_python_constants(v);
  if (!v->is(Kind::Dict) || (v->type() != k.ordered_dict && v->type() != k.default_dict)) return false;
  auto* d = v->as<DictVariable>();
  // One from outside may have been changed behind its order, by dict's own methods.
  if (d->real && v->type() == k.ordered_dict) return false;
  if (d->default_factory && !tr_.real.is_python_constant(d->default_factory)) return false;
  return tr_.real.holds_python_constants(v);
}

Variable* Protocols::format(Variable* v, const std::string& spec, int conversion) {
  v = tr_.force(v);
  if (v->is(Kind::Real)) guard_text(tr_, v);
  if (v->is(Kind::Constant) && (v->type()->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    // A number or text of the program's class may say itself what it looks like.
    for (const char* m : {conversion ? "__repr__" : "__format__", "__str__", "__repr__"}) {
      SourceId at;
      PyObject* f = tr_.attributes.lookup_on_type(v->type(), tr_.intern(m), &at);
      if (!f || !PyFunction_Check(f) || !at.valid()) continue;
      if (!of_library(f)) tr_.unsupported("the text of " + v->describe());
      tr_.guard_identity(at, f);
    }
  }
  if (tr_.real.is_python_constant(v) || is_container_of_constants(v)) {
    if (!v->is(Kind::Constant)) tr_.real.check_methods(v, RealCalls::Methods::Texts);
    Ref o = tr_.real.to_python(v);
    if (conversion == 1)
      o = Ref::steal(PyObject_Str(o.get()));
    else if (conversion == 2)
      o = Ref::steal(PyObject_Repr(o.get()));
    else if (conversion == 3)
      o = Ref::steal(PyObject_ASCII(o.get()));
    if (!o) tr_.raise_current();
    Ref s = Ref::steal(PyUnicode_FromStringAndSize(spec.data(), static_cast<Py_ssize_t>(spec.size())));
    Ref out = Ref::steal(PyObject_Format(o.get(), s.get()));
    if (!out) tr_.raise_current();
    return tr_.constant(out, Ground::pure(v));
  }
  if (v->is(Kind::MappingProxy) && spec.empty()) {
    Ref text = tr_.real.to_python(format(v->as<MappingProxyVariable>()->mapping, "", conversion == 2 ? 2 : 1));
    return conversion == 2
               ? tr_.string("mappingproxy(" + std::string(PyUnicode_AsUTF8(text.get())) + ")", Ground::pure(v))
               : tr_.constant(text, Ground::pure(v));
  }
  if (v->is(Kind::Object) || v->is(Kind::Real)) {
    if (v->is(Kind::Real)) {
      PyObject* o = v->as_constant();
      if (PyType_Check(o) || PyCallable_Check(o)) {
        Ref s = Ref::steal(conversion == 2 ? PyObject_Repr(o) : PyObject_Str(o));
        if (!s) tr_.raise_current();
        return tr_.constant(s, Ground::pure(v));
      }
    } else {
      SourceId format_at;
      PyObject* own =
          conversion ? nullptr : tr_.attributes.lookup_on_type(v->type(), tr_.intern("__format__"), &format_at);
      if (own && PyFunction_Check(own)) {
        Variable* s =
            tr_.force(call(tr_.attributes.bind_descriptor(own, format_at, v, v->type(), tr_.intern("__format__")),
                           {tr_.string(spec, Ground::pure(v))}));
        if (!PyType_IsSubtype(s->type(), &PyUnicode_Type))
          tr_.raise(PyExc_TypeError, std::string("__format__ must return a str, not ") + tr_.name_of(s->type()));
        return s;
      }
      if (!conversion && !spec.empty()) tr_.unsupported("the text of " + v->describe());
      for (const char* m : {conversion == 2 ? "__repr__" : "__str__", "__repr__"}) {
        SourceId at;
        PyObject* f = tr_.attributes.lookup_on_type(v->type(), tr_.intern(m), &at);
        if (f && (PyFunction_Check(f) || v->as<ObjectVariable>()->is_exception())) {
          Variable* s = tr_.force(
              call(tr_.attributes.bind_descriptor(f, at, v, v->type(), tr_.intern(m)), std::vector<Variable*>{}));
          if (s->type() != &PyUnicode_Type) tr_.unsupported(std::string(m) + " that does not return a str");
          return format(s, spec, 0);
        }
        // A subclass of a class whose text is that of its content.
        static const std::unordered_set<PyTypeObject*> like_content{&PyLong_Type,    &PyFloat_Type, &PyComplex_Type,
                                                                    &PyUnicode_Type, &PyBytes_Type, &PyList_Type,
                                                                    &PyDict_Type,    &PyTuple_Type};
        Variable* content = v->as<ObjectVariable>()->base;
        if (content && f && Py_TYPE(f) == &PyWrapperDescr_Type &&
            like_content.count(reinterpret_cast<PyDescrObject*>(f)->d_type)) {
          if (at.valid()) tr_.guard_identity(at, f);
          return format(content, spec, conversion);
        }
      }
    }
  }
  tr_.unsupported("the text of " + v->describe());
}

}  // namespace braze::capture
