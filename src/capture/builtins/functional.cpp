// functools, itertools, copy, contextlib: what is modelled; the rest is inlined as Python or has a polyfill.

#include "capture/builtins/builtins.h"
#include "capture/cpython/imported.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/operands.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {
namespace {

Variable* do_partial(Translator& tr, Args& a) {
  if (a.size() < 1) return nullptr;
  Args own{std::vector<Variable*>(a.pos.begin() + 1, a.pos.end()), a.kw};
  Variable* fn = a[0];
  if (fn->is(Kind::Partial)) {  // partials of partials are one
    fn->as<PartialVariable>()->merge(tr, own);
    fn = fn->as<PartialVariable>()->function;
  }
  if (PyObject* place = partial_placeholder())
    for (Variable* v : own.pos)
      if (tr.force(v)->type() == Py_TYPE(place)) tr.unsupported("a functools.partial with a Placeholder");
  auto* keywords = tr.dict();
  for (auto& [k, v] : own.kw) keywords->set(tr, k, v);
  return tr.make<PartialVariable>(fn, tr.tuple(own.pos), keywords);
}

// operator's makers of functions: with constants, their own objects; RealVariable::call() knows those.
template <int which>
Variable* do_operator_object(Translator& tr, Args& a) {
  static PyObject* maker = operator_function(which == 0 ? "itemgetter" : which == 1 ? "attrgetter" : "methodcaller");
  for (Variable* v : a.pos)
    if (!v->as_constant() || !is_constant_type(v->type())) return nullptr;
  for (auto& [k, v] : a.kw)
    if (Variable* given = tr.force(v); !given->as_constant() || !is_constant_type(given->type())) return nullptr;
  return tr.real.call_pure(maker, a);
}

// Only tells how long values live: what was inlined has no frames that keep any.
Variable* do_clear_frames(Translator& tr, Args& a) {
  return a.size() == 1 && (a[0]->is(Kind::Traceback) || is_none(a[0])) ? tr.none() : nullptr;
}

Variable* do_reduce(Translator& tr, Args& a) {
  if (a.size() < 2 || a.size() > 3 || !a.kw.empty()) return nullptr;
  auto items = tr.unpack(a[1]);
  size_t i = 0;
  Variable* total = a.size() > 2 ? a[2] : nullptr;
  if (!total) {
    if (items.empty()) tr.raise(PyExc_TypeError, "reduce() of empty iterable with no initial value");
    total = items[i++];
  }
  for (; i < items.size(); ++i) total = tr.call(a[0], {total, items[i]});
  return total;
}

bool guard_signature(Translator& tr, FunctionVariable* f);

// What inspect finds on the function under this name, as the same object; false: nothing that guards know.
bool guard_field(Translator& tr, FunctionVariable* f, const char* name) {
  Variable* v = f->getattr(tr, tr.intern(name));
  // That it is none, or this code, is guarded.
  if (!v || (is_none(v) && !v->source.valid()) || (v->as_constant() && PyCode_Check(v->as_constant()))) return true;
  if (!v->is(Kind::Lazy) || !v->source.valid()) return false;
  PyObject* now = v->as<LazyVariable>()->object.get();
  tr.guard_identity(v->source, now);
  if (PyDict_CheckExact(now) && PyDict_GET_SIZE(now))  // what is in it can change
    for (const auto& e : tr.force(v)->as<DictVariable>()->entries(tr)) {
      if (!e.value->is(Kind::Lazy) || !e.value->source.valid()) return false;
      tr.guard_identity(e.value->source, e.value->as<LazyVariable>()->object.get());
    }
  if (std::string_view(name) != "__wrapped__") return true;
  Variable* wrapped = tr.force(v);
  return wrapped->is(Kind::Function) && guard_signature(tr, wrapped->as<FunctionVariable>());
}

// That a function keeps all that its signature is made of.
bool guard_signature(Translator& tr, FunctionVariable* f) {
  if (!f->real) return false;
  for (const char* name :
       {"__code__", "__defaults__", "__kwdefaults__", "__annotations__", "__signature__", "__wrapped__"})
    if (!guard_field(tr, f, name)) return false;
  return true;
}

bool guard_signature_of_class(Translator& tr, PyTypeObject* cls) {
  auto method = [&](PyTypeObject* of, const char* name) {
    SourceId at;
    PyObject* found = tr.attributes.lookup_on_type(of, tr.intern(name), &at);
    if (!found || !PyFunction_Check(found)) return !found || is_library_method(found);
    tr.guard_identity(at, found);
    Variable* f = tr.force(tr.wrap(found, at));
    return f->is(Kind::Function) && guard_signature(tr, f->as<FunctionVariable>());
  };
  if (is_fixed_type(cls)) return true;
  for (const char* name : {"__signature__", "__text_signature__", "__new__", "__init__"})
    if (!method(cls, name)) return false;
  return is_fixed_type(Py_TYPE(cls)) || method(Py_TYPE(cls), "__call__");
}

// The signature of a function that is there for good is computed by inspect itself.
Variable* do_signature(Translator& tr, Args& a) {
  if (a.size() != 1 || !a.kw.empty()) return nullptr;
  Variable *v = a[0], *fn = v;
  bool method = v->is(Kind::BoundMethod);
  if (method) fn = tr.force(v->as<BoundMethodVariable>()->function);
  Ref target;
  if (fn->is(Kind::Function) && fn->as<FunctionVariable>()->real) {
    auto* f = fn->as<FunctionVariable>();
    if (!f->anchored) tr.guard_identity(f->source, f->real.get());
    target = f->real;
    if (method) target = Ref::steal(PyMethod_New(target.get(), Py_Ellipsis));  // any self will do
  } else if (PyObject* o = fn->as_constant(); o && !method) {
    target = Ref::borrow(o);
  } else {
    return nullptr;
  }
  static PyObject* signature = [] {
    Ref m = Ref::steal(PyImport_ImportModule("inspect"));
    return native::attr(Ground::fixed(), m.get(), "signature");
  }();
  Ref s = Ref::steal(PyObject_CallOneArg(signature, target.get()));
  if (!s) tr.raise_current();
  const bool known = fn->is(Kind::Function) ? guard_signature(tr, fn->as<FunctionVariable>())
                     : PyType_Check(fn->as_constant())
                         ? guard_signature_of_class(tr, reinterpret_cast<PyTypeObject*>(fn->as_constant()))
                         : PyCFunction_Check(fn->as_constant()) != 0;
  if (!known) tr.unsupported("the signature of " + v->describe());
  tr.segment().signatures.emplace_back(s, target);
  return tr.global_object(s.get(), Ground::pure(a));
}

// ---- closures of the standard library, known by their code ----

// What a function that was there before sees under the name of a free variable.
Variable* free_variable(Translator& tr, Variable* function, const char* name) {
  auto* f = function->as<FunctionVariable>();
  Ref names = Ref::steal(native::attr(Ground::code(), reinterpret_cast<PyObject*>(f->code_object()), "co_freevars"));
  Variable* cells = tr.force(tr.getattr(f, "__closure__"));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); ++i)
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names.get(), i), name) == 0)
      return tr.force(cells->as<TupleVariable>()->elements[static_cast<size_t>(i)])->as<CellVariable>()->get(tr);
  return nullptr;
}

// A repr that notices when it is called for an object whose repr is being made: such objects end the capture by their
// depth.
Variable* do_recursive_repr(Translator& tr, Args& a) {
  Variable* inner = a.size() == 2 ? free_variable(tr, a[0], "user_function") : nullptr;
  return inner ? tr.call(inner, {a[1]}) : nullptr;
}

// dispatch(cls) of functools.singledispatch: the choice is functools' own, among the implementations that are
// registered now.
Variable* do_dispatch(Translator& tr, Args& a) {
  PyObject* cls = a.size() == 2 ? a[1]->as_constant() : nullptr;
  Variable* registry = cls && PyType_Check(cls) ? free_variable(tr, a[0], "registry") : nullptr;
  if (!registry || !tr.force(registry)->is(Kind::Dict)) return nullptr;
  auto* d = tr.force(registry)->as<DictVariable>();
  if (!d->real || d->len(tr) != PyDict_GET_SIZE(d->real.get())) return nullptr;
  auto object = [](Variable* v) {
    return v->is(Kind::Lazy)       ? v->as<LazyVariable>()->object.get()
           : v->is(Kind::Function) ? v->as<FunctionVariable>()->real.get()
                                   : v->as_constant();
  };
  // What the code registered here is not there for real yet.
  for (const auto& e : d->entries(tr))
    if (native::item(Ground::guarded(d->source), d->real.get(), e.hash_key.get()) != object(e.value)) return nullptr;
  // It goes by what the class is derived from, and by what abstract classes count it to theirs.
  tr.attributes.guard_bases(reinterpret_cast<PyTypeObject*>(cls));
  for (const auto& e : d->entries(tr)) {
    PyObject* key = e.key->as_constant();
    if (!key || !PyType_Check(key)) return nullptr;
    tr.guard_registrations(key);
  }
  Ref chosen = Ref::steal(PyObject_CallOneArg(a[0]->as<FunctionVariable>()->real.get(), cls));
  if (!chosen) tr.raise_current();
  for (const auto& e : d->entries(tr))
    if (object(e.value) == chosen.get()) return e.value;
  return nullptr;
}

void register_code(const char* make, BuiltinHandler handler) {
  Ref globals = Ref::steal(PyDict_New());
  PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins());
  Ref code = Ref::steal(PyRun_String(make, Py_eval_input, globals.get(), globals.get()));
  if (code)
    register_builtin(code.release(), handler);
  else
    PyErr_Clear();
}

// Functions of re: the cache of patterns behind them does not show.
template <int i>
Variable* do_re(Translator& tr, Args& a) {
  static const char* names[] = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "escape"};
  static PyObject* function = [] {
    Ref m = Ref::steal(PyImport_ImportModule("re"));
    return native::attr(Ground::fixed(), m.get(), names[i]);
  }();
  // re.DEBUG prints.
  auto prints = [](Variable* v) {
    PyObject* flags = v->as_constant();
    return flags && PyLong_Check(flags) && (PyLong_AsUnsignedLongLongMask(flags) & 128);
  };
  for (Variable* v : a.pos)
    if (prints(v)) return nullptr;
  for (auto& [name, v] : a.kw)
    if (prints(tr.force(v))) return nullptr;
  return tr.real.call_pure(function, a);
}

Variable* do_made_of(Translator& tr, Args& a) {
  PyObject* cls = a[0]->as_constant();
  return tr.make<WrappedIterator>(reinterpret_cast<PyTypeObject*>(cls), a[2], Args{a[1]->items(tr), {}});
}

// The names are kept on the class, as copying does: no program can tell when that was done.
Variable* do_slot_names(Translator& tr, Args& a) {
  PyObject* cls = a.size() == 1 && a.kw.empty() ? a[0]->as_constant() : nullptr;
  if (!cls || !PyType_Check(cls)) return nullptr;
  static PyObject* find = imported("copyreg", "_slotnames");
  Ref names = Ref::steal(PyObject_CallOneArg(find, cls));
  if (!names) tr.raise_current();
  return tr.from_python(std::move(names), Ground::pure(a[0]));
}

}  // namespace

void register_functional_builtins() {
  register_builtin("copyreg", "_slotnames", do_slot_names);
  register_builtin("re", "compile", do_re<0>);
  register_builtin("re", "match", do_re<1>);
  register_builtin("re", "fullmatch", do_re<2>);
  register_builtin("re", "search", do_re<3>);
  register_builtin("re", "sub", do_re<4>);
  register_builtin("re", "subn", do_re<5>);
  register_builtin("re", "split", do_re<6>);
  register_builtin("re", "findall", do_re<7>);
  register_builtin("re", "escape", do_re<8>);
  for (const char* n : {"chain", "repeat", "count", "cycle", "islice", "product", "accumulate", "zip_longest",
                        "pairwise", "starmap", "takewhile", "dropwhile", "filterfalse", "compress", "combinations",
                        "combinations_with_replacement", "permutations", "groupby", "tee"})
    register_polyfill("itertools", n, n);
  register_polyfill("itertools", "chain.from_iterable", "chain_from_iterable");
  register_builtin("braze.polyfills", "itertool", make_itertool);
  register_builtin("braze.polyfills", "made_of", do_made_of);
  for (const char* n : {"itemgetter", "attrgetter", "methodcaller"}) register_polyfill("_operator", n, n);
  register_builtin("_operator", "itemgetter", do_operator_object<0>);
  register_builtin("_operator", "attrgetter", do_operator_object<1>);
  register_builtin("_operator", "methodcaller", do_operator_object<2>);
  register_polyfill("copy", "deepcopy", "deepcopy");
  for (const char* n : {"heapify", "heappush", "heappop", "heapreplace", "heappushpop"})
    register_polyfill("_heapq", n, n);
  for (const char* n : {"bisect_left", "bisect_right", "insort_left", "insort_right"})
    register_polyfill("_bisect", n, n);
  for (const char* n : {"countOf", "indexOf"}) register_polyfill("_operator", n, n);
  register_polyfill("_collections", "_count_elements", "count_elements");
  register_polyfill("functools", "cmp_to_key", "cmp_to_key");
  register_polyfill("copy", "copy", "copy");
  register_code("__import__('dataclasses')._recursive_repr(lambda self: '').__code__", do_recursive_repr);
  register_code("__import__('reprlib').recursive_repr()(lambda self: '').__code__", do_recursive_repr);
  register_code("__import__('functools').singledispatch(lambda a: a).dispatch.__code__", do_dispatch);
  register_builtin("traceback", "clear_frames", do_clear_frames);
  register_builtin("functools", "partial", do_partial);
  register_builtin("functools", "reduce", do_reduce);
  register_builtin("inspect", "signature", do_signature);
}

}  // namespace braze::capture
