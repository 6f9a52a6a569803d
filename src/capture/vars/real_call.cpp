// Calls of objects that are known by identity: classes, functions in C, methods, caches.
#include <algorithm>

#include "capture/builtins/builtins.h"
#include "capture/builtins/signature_errors.h"
#include "capture/cpython/imported.h"
#include "capture/cpython/lru_cache.h"
#include "capture/eval/callback.h"
#include "capture/eval/calls.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/markers.h"
#include "capture/eval/scalar_operands.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "trace/pytorch/names.h"

namespace braze::capture {
namespace {

// Functions of NumPy that give a number for numbers.
bool is_numpy_ufunc(PyTypeObject* t) { return std::string_view(t->tp_name) == "numpy.ufunc"; }

// torch.func.linearize traces the function with PyTorch's own compiler.
bool traces_by_itself(PyObject* o) {
  if (!PyFunction_Check(o)) return false;
  // The code's name: functools.wraps gives the function that of the user's.
  auto* code = reinterpret_cast<PyCodeObject*>(reinterpret_cast<PyFunctionObject*>(o)->func_code);
  const char* c = PyUnicode_AsUTF8(code->co_qualname);
  std::string_view name = c ? c : "";
  name = name.substr(0, name.find('.'));
  return name == "linearize";
}

// The polyfill for objects of one of operator's classes of functions, or nullptr.
const char* operator_maker(PyTypeObject* t) {
  std::string_view name = t->tp_name;
  return name == "operator.itemgetter"     ? "itemgetter"
         : name == "operator.attrgetter"   ? "attrgetter"
         : name == "operator.methodcaller" ? "methodcaller"
                                           : nullptr;
}

Variable* call_method_of_class(Translator& tr, RealVariable& real, Args& args) {
  PyObject* o = real.object.get();
  if (Py_TYPE(o) == &PyMethodDescr_Type || Py_TYPE(o) == &PyWrapperDescr_Type) {
    auto* d = reinterpret_cast<PyDescrObject*>(o);
    if (args.size() == 0) {
      std::string of = d->d_type->tp_name, name = PyUnicode_AsUTF8(d->d_name);
      if (Py_TYPE(o) == &PyWrapperDescr_Type)
        tr.raise(PyExc_TypeError, "descriptor '" + name + "' of '" + of + "' object needs an argument");
      tr.raise(PyExc_TypeError, "unbound method " + of.substr(of.rfind('.') + 1) + "." + name + "() needs an argument");
    }
    Variable* self = tr.force(args[0]);
    if (!self->is(Kind::Tensor) && !self->is(Kind::Sym) && !PyType_IsSubtype(self->type(), d->d_type)) {
      std::string method = std::string("descriptor '") + PyUnicode_AsUTF8(d->d_name) + "' ";
      if (Py_TYPE(o) == &PyMethodDescr_Type)
        tr.raise(PyExc_TypeError, method + "for '" + tr.name_of(d->d_type) + "' objects doesn't apply to a '" +
                                      tr.name_of(self->type()) + "' object");
      tr.raise(PyExc_TypeError, method + "requires a '" + tr.name_of(d->d_type) + "' object but received a '" +
                                    tr.name_of(self->type()) + "'");
    }
    args.pos.erase(args.pos.begin());
    return call_builtin_method(tr, self, d->d_type, d->d_name, args);
  }
  return nullptr;
}

Variable* call_new(Translator& tr, RealVariable& real, Args& args) {
  PyObject* o = real.object.get();
  if (PyObject* maker = PyCFunction_Check(o) ? PyCFunction_GET_SELF(o) : nullptr;
      maker && PyType_Check(maker) && args.size() &&
      std::string_view(reinterpret_cast<PyCFunctionObject*>(o)->m_ml->ml_name) == "__new__") {
    // dict.__new__(cls) and the like: an object of a class of its own, before any __init__.
    PyObject* given = args[0]->as_constant();
    auto *cls = given && PyType_Check(given) ? reinterpret_cast<PyTypeObject*>(given) : nullptr,
         *of = reinterpret_cast<PyTypeObject*>(maker);
    bool container = of == &PyDict_Type || of == &PyList_Type || of == &PySet_Type;
    if (cls && container && cls != of && (cls->tp_flags & Py_TPFLAGS_HEAPTYPE) && PyType_IsSubtype(cls, of) &&
        !tr.attributes.lookup_on_type(cls, tr.intern("__del__"), nullptr)) {
      Args rest{std::vector<Variable*>(args.pos.begin() + 1, args.pos.end()), args.kw};
      return builtin_new(tr, cls, o, rest);
    }
  }
  return nullptr;
}

Variable* call_bound_function(Translator& tr, RealVariable& real, Args& args) {
  PyObject* o = real.object.get();
  if (PyCFunction_Check(o)) {
    PyObject* self = PyCFunction_GET_SELF(o);
    // A method that is modelled, bound before.
    PyObject* name = self && is_constant_type(Py_TYPE(self))
                         ? tr.intern(reinterpret_cast<PyCFunctionObject*>(o)->m_ml->ml_name)
                         : nullptr;
    if (PyObject* raw = name ? native::type_attr(Ground::fixed(), Py_TYPE(self), name) : nullptr;
        raw && find_builtin(raw))
      return call_builtin_method(tr, tr.constant(self, Ground::pure(&real, args)), Py_TYPE(self), name, args);
    // A class method that is modelled, bound before.
    if (self && PyType_Check(self)) {
      PyMethodDef* method = reinterpret_cast<PyCFunctionObject*>(o)->m_ml;
      PyObject* descr =
          native::type_attr(Ground::conservative(), reinterpret_cast<PyTypeObject*>(self), tr.intern(method->ml_name));
      bool same = descr && Py_TYPE(descr) == &PyClassMethodDescr_Type &&
                  reinterpret_cast<PyMethodDescrObject*>(descr)->d_method == method;
      if (BuiltinHandler handler = same ? find_builtin(descr) : nullptr) {
        Args with{{tr.global_object(self, Ground::pure(&real))}, args.kw};
        with.pos.insert(with.pos.end(), args.pos.begin(), args.pos.end());
        if (Variable* v = handler(tr, with)) return v;
      }
    }
    bool number_class = self && PyType_Check(self) && is_constant_type(reinterpret_cast<PyTypeObject*>(self));
    if (self && (is_constant_type(Py_TYPE(self)) || PyFrozenSet_CheckExact(self) || number_class))
      return tr.real.call_pure(o, args);
  }
  return nullptr;
}

Variable* call_method_wrapper(Translator& tr, RealVariable& real, Args& args) {
  PyObject* o = real.object.get();
  if (Py_TYPE(o) == method_wrapper_type()) {
    Ref self = Ref::steal(native::attr(Ground::fixed(), o, "__self__")),
        name = Ref::steal(native::attr(Ground::fixed(), o, "__name__"));
    if (self && name && PyUnicode_CompareWithASCIIString(name.get(), "__get__") == 0)
      if (Variable* v = get_through(tr, self.get(), args)) return v;
    PyErr_Clear();
  }
  return nullptr;
}

Variable* call_weak_reference(Translator& tr, RealVariable& real, Args& args) {
  PyObject* o = real.object.get();
  if (PyWeakref_CheckRefExact(o) && args.size() == 0 && args.kw.empty()) {
    PyObject* target = PyWeakref_GET_OBJECT(o);
    if (target == Py_None) return tr.none();
    refuse_if_let_go(tr, target);
    return tr.force(tr.wrap(target, tr.sources().derived(SourceKind::WeakTarget, real.source)));
  }
  return nullptr;
}

Variable* call_operator_object(Translator& tr, RealVariable& real, Args& args) {
  PyObject* o = real.object.get();
  if (const char* maker = operator_maker(Py_TYPE(o))) {
    // Made anew from what it says that it was made from: a class, or a partial of it that holds the keywords; and
    // arguments.
    Ref parts = Ref::steal(PyObject_CallMethod(o, "__reduce__", nullptr));
    if (!parts) tr.raise_current();
    Args own;
    auto append = [&](PyObject* t) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(t); ++i)
        own.pos.push_back(tr.from_python(Ref::borrow(PyTuple_GET_ITEM(t, i)), Ground::pure(&real, args)));
    };
    if (PyObject* made_by = PyTuple_GET_ITEM(parts.get(), 0); Py_TYPE(made_by) == library().partial) {
      Ref first = Ref::steal(native::attr(Ground::made(), made_by, "args")),
          named_ones = Ref::steal(native::attr(Ground::made(), made_by, "keywords"));
      append(first.get());
      PyObject *k, *v;
      for (Py_ssize_t pos = 0; PyDict_Next(named_ones.get(), &pos, &k, &v);)
        own.kw.emplace_back(tr.keep(Ref::borrow(k)), tr.from_python(Ref::borrow(v), Ground::pure(&real, args)));
    }
    append(PyTuple_GET_ITEM(parts.get(), 1));
    return tr.call(tr.call(tr.real.polyfill(maker), own), args);
  }
  return nullptr;
}

void refuse_unhashable(Translator& tr, Variable* v) {
  v = tr.force(v);
  tr.check_stack();
  bool made = (v->is(Kind::Object) || v->is(Kind::List) || v->is(Kind::Dict) || v->is(Kind::Set));
  if (made && tr.attributes.lookup_on_type(v->type(), tr.intern("__hash__"), nullptr) == Py_None)
    tr.raise(PyExc_TypeError, "unhashable type: '" + tr.name_of(v->type()) + "'");
  if (v->is(Kind::Tuple))
    for (Variable* e : v->as<TupleVariable>()->elements) refuse_unhashable(tr, e);
}

Variable* call_cache(Translator& tr, RealVariable& real, Args& args) {
  PyObject* o = real.object.get();
  if (Py_TYPE(o) == library().lru_cache) {
    if (Variable* v = tr.real.cached_call(&real, args)) return v;
    // For arguments that are made in the capture the cache is for speed, but it refuses what has no hash.
    for (Variable* v : args.pos) refuse_unhashable(tr, v);
    for (auto& [name, v] : args.kw) refuse_unhashable(tr, v);
    Ref wrapped = Ref::steal(cpython::lru_function(o));
    if (wrapped) return tr.call(tr.global_object(wrapped.get(), Ground::pure(&real, args)), args);
    PyErr_Clear();
  }
  return nullptr;
}

Variable* call_script(Translator& tr, RealVariable& real, Args& args) {
  PyObject* o = real.object.get();
  if (std::string_view(Py_TYPE(o)->tp_name).ends_with("ScriptFunction")) {
    // PyTorch keeps the Python function that was scripted.
    Ref scripted = Ref::steal(
        native::attr(Ground::guarded(real.source), o, pytorch::interned(pytorch::Attribute::scripted_function)));
    if (scripted && PyFunction_Check(scripted.get()))
      return tr.call(tr.global_object(tr.keep(std::move(scripted)), Ground::pure(&real, args)), args);
    PyErr_Clear();
  }
  return nullptr;
}

using Rule = Variable* (*)(Translator&, RealVariable&, Args&);
// In order: nullptr says that the object is none of these.
constexpr Rule kRules[] = {
    call_method_of_class, call_new,   call_bound_function, call_method_wrapper, call_weak_reference,
    call_operator_object, call_cache, call_script};

// Lists that PyTorch or NumPy is given. Refused are one that holds itself, which they refuse, too, and what reads
// arguments here would not come to an end with; and very long ones, whose elements would be as many guards and
// operators.
class ListArguments {
 public:
  explicit ListArguments(Translator& tr) : tr_(tr) {}
  static bool is_list(Variable* v) {
    PyObject* lazy = unseen(v);
    return lazy ? PyList_Check(lazy) || PyTuple_Check(lazy) : v->is(Kind::List) || v->is(Kind::Tuple);
  }
  void check(Variable* v) {
    if (!is_list(v)) return;
    if (PyObject* lazy = unseen(v); lazy && PySequence_Fast_GET_SIZE(lazy) > kMostElements) refuse();
    v = tr_.force(v);
    if (!v->is(Kind::List) && !v->is(Kind::Tuple)) return;  // of a class of its own
    if (std::ranges::find(outer_, v) != outer_.end()) tr_.unsupported("a list that holds itself");
    const auto& elements = static_cast<SequenceVariable*>(v)->elements;
    if ((seen_ += static_cast<int64_t>(elements.size())) > kMostElements) refuse();
    outer_.push_back(v);
    for (Variable* e : elements) check(e);
    outer_.pop_back();
  }

 private:
  static PyObject* unseen(Variable* v) { return v->is(Kind::Lazy) ? v->as<LazyVariable>()->object.get() : nullptr; }
  [[noreturn]] void refuse() {
    tr_.unsupported("lists of more than " + std::to_string(kMostElements) + " elements in a call");
  }

  Translator& tr_;
  std::vector<Variable*> outer_;
  int64_t seen_ = 0;
};

}  // namespace

Variable* RealVariable::call(Translator& tr, Args& args) {
  PyObject* o = object.get();
  if (std::ranges::any_of(args.pos, ListArguments::is_list) ||
      std::ranges::any_of(args.kw, ListArguments::is_list, &std::pair<PyObject*, Variable*>::second))
    if (torch_rule(o) != TorchRule::None || of_numpy(o)) {
      ListArguments lists(tr);
      for (Variable* v : args.pos) lists.check(v);
      for (auto& [name, v] : args.kw) lists.check(v);
    }
  if (Variable* v = call_with_open_scalar(tr, o, args)) return v;
  for (Variable*& a : args.pos) a = tr.force(a);
  if (is_disabled(o)) tr.unsupported(Reason::DisabledFunction, full_name(o) + why_disabled(o));
  if (PyObject* by = find_substitute(o)) return tr.call(tr.global_object(by, Ground::pure(this, args)), args);
  if (BuiltinHandler handler = find_builtin(o)) {
    if (!args.kw.empty() && takes_no_keywords(o)) raise_if_miscalled(tr, o, nullptr, args);
    if (!args.kw.empty() && takes_no_keywords(o))
      tr.unsupported(Reason::UnknownFunction, "keyword arguments of " + full_name(o));
    if (Variable* v = handler(tr, args)) return v;
  }
  if (of_numpy(o) && !is_pure(o))
    if (Variable* v = call_numpy(tr, o, args)) return v;
  if (const char* name = find_polyfill(o)) return tr.force(tr.call(tr.real.polyfill(name), args));
  if (PyObject* inner = wrapped_function(o)) return tr.call(tr.global_object(inner, Ground::pure(this, args)), args);
  switch (torch_rule(o)) {
    case TorchRule::Call:
      // Written in Python, and given what is no value of PyTorch's (a module, a function): inlined as the program's own
      // functions are.
      if (PyFunction_Check(o) && !tr.real.are_values(args)) {
        auto* f = tr.make<FunctionVariable>(o, source.valid() ? source : tr.sources().constant(o));
        f->anchored = true;
        return f->call(tr, args);
      }
      if (Variable* v = call_triton_operator(tr, o, args)) return v;
      return tr.real.call_torch(o, args);
    case TorchRule::Host:
      if (traces_by_itself(o)) tr.unsupported("torch.func.linearize");
      if (wraps_user_code(o))
        return tr.host.call(tr.host.with_callbacks(o, source.valid() ? source : tr.sources().constant(o)).get(), args);
      return tr.host.call(o, args);
    case TorchRule::Constant: return tr.real.query_torch(o, args);
    case TorchRule::None: break;
  }
  if (is_pure(o) || is_numpy_ufunc(Py_TYPE(o))) return tr.real.call_pure(o, args);
  if (PyType_Check(o)) return instantiate(tr, reinterpret_cast<PyTypeObject*>(o), args);
  for (Rule rule : kRules)
    if (Variable* v = rule(tr, *this, args)) return v;
  if (PyCFunction_Check(o)) raise_if_miscalled(tr, o, nullptr, args);
  if (is_allowed_in_graph(o)) {
    tr.segment().here_only = "a function that the program allows in the graph";
    return tr.real.call_torch(o, args);
  }
  tr.unsupported(Reason::UnknownFunction, full_name(o));
}

}  // namespace braze::capture
