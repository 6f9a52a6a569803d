// Calls of Python functions: inlining, and how arguments are bound to parameters.
#include "capture/eval/calls.h"

#include <algorithm>
#include <string_view>

#include "capture/builtins/builtins.h"
#include "capture/builtins/signature_errors.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/markers.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "trace/pytorch/names.h"

namespace braze::capture {

// The error of a call whose arguments don't fit the parameters, in CPython's words: it comes before the function runs,
// so one with the same parameters and as many defaults raises it, too.
[[noreturn]] static void raise_misbound(Translator& tr, FunctionVariable* fn, const Args& args) {
  PyCodeObject* co = fn->code_object();
  Ref globals = Ref::steal(PyDict_New());
  Ref like = Ref::steal(PyFunction_NewWithQualName(reinterpret_cast<PyObject*>(co), globals.get(), co->co_qualname));
  if (!like) tr.raise_current();
  if (fn->real) {
    // What the error rests on, and its words.
    for (const char* read : {"__defaults__", "__kwdefaults__", "__qualname__"})
      if (Variable* v = tr.force(fn->getattr(tr, tr.intern(read))); v->is(Kind::Dict))
        v->as<DictVariable>()->entries(tr);
    if (PyObject* d = PyFunction_GET_DEFAULTS(fn->real.get())) PyFunction_SetDefaults(like.get(), d);
    if (PyObject* d = PyFunction_GET_KW_DEFAULTS(fn->real.get())) PyFunction_SetKwDefaults(like.get(), d);
    Ref qualname = Ref::steal(native::attr(Ground::conservative(), fn->real.get(), "__qualname__"));
    PyObject_SetAttrString(like.get(), "__qualname__", qualname.get());
  } else {
    Variable* d = fn->defaults ? tr.force(fn->defaults) : nullptr;
    if (d && d->is(Kind::Tuple)) {
      Ref nones = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(d->as<TupleVariable>()->elements.size())));
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(nones.get()); ++i)
        PyTuple_SET_ITEM(nones.get(), i, Py_NewRef(Py_None));
      PyFunction_SetDefaults(like.get(), nones.get());
    }
    Variable* k = fn->kwdefaults ? tr.force(fn->kwdefaults) : nullptr;
    if (k && k->is(Kind::Dict)) {
      Ref named = Ref::steal(PyDict_New());
      for (const auto& e : k->as<DictVariable>()->entries(tr)) PyDict_SetItem(named.get(), e.hash_key.get(), Py_None);
      PyFunction_SetKwDefaults(like.get(), named.get());
    }
  }
  Ref pos = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(args.size()))), kw = Ref::steal(PyDict_New());
  for (size_t i = 0; i < args.size(); ++i) PyTuple_SET_ITEM(pos.get(), static_cast<Py_ssize_t>(i), Py_NewRef(Py_None));
  for (auto& [name, v] : args.kw) PyDict_SetItem(kw.get(), name, Py_None);
  if (co->co_nfreevars) {
    Ref cells = Ref::steal(PyTuple_New(co->co_nfreevars));
    for (int i = 0; i < co->co_nfreevars; ++i) PyTuple_SET_ITEM(cells.get(), i, PyCell_New(nullptr));
    PyFunction_SetClosure(like.get(), cells.get());
  }
  Ref result = Ref::steal(PyObject_Call(like.get(), pos.get(), kw.get()));
  if (result || !PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    tr.unsupported(Reason::RaisedException, "the arguments of " + fn->describe());
  }
  tr.raise_current();
}

static void bind_arguments(Translator& tr, FunctionVariable* fn, Args& args, Frame& f) {
  PyCodeObject* co = f.code->code;
  int positional = co->co_argcount, kwonly = co->co_kwonlyargcount, named = positional + kwonly;
  bool star = co->co_flags & CO_VARARGS, star_star = co->co_flags & CO_VARKEYWORDS;
  int given = static_cast<int>(args.pos.size());
  for (int i = 0; i < std::min(given, positional); ++i)
    f.locals[static_cast<size_t>(i)] = args.pos[static_cast<size_t>(i)];
  if (star)
    f.locals[static_cast<size_t>(named)] =
        tr.tuple(given > positional ? std::vector<Variable*>(args.pos.begin() + positional, args.pos.end())
                                    : std::vector<Variable*>{});
  else if (given > positional)
    raise_misbound(tr, fn, args);
  DictVariable* more = nullptr;
  if (star_star) f.locals[static_cast<size_t>(named + star)] = more = tr.dict();
  for (auto& [name, value] : args.kw) {
    int at = -1;
    for (int i = co->co_posonlyargcount; i < named && at < 0; ++i)
      if (f.code->local_name(i) == name) at = i;
    for (int i = co->co_posonlyargcount; i < named && at < 0; ++i)
      if (PyUnicode_Compare(f.code->local_name(i), name) == 0) at = i;
    if (at >= 0) {
      if (f.locals[static_cast<size_t>(at)]) raise_misbound(tr, fn, args);
      f.locals[static_cast<size_t>(at)] = value;
    } else if (more) {
      more->set(tr, name, value);
    } else {
      raise_misbound(tr, fn, args);
    }
  }
  Variable *defaults = fn->defaults, *kwdefaults = fn->kwdefaults;
  if (fn->real) {
    if (PyObject* d = PyFunction_GET_DEFAULTS(fn->real.get()))
      defaults = tr.wrap(d, tr.sources().derived(SourceKind::FuncDefaults, fn->source));
    if (PyObject* d = PyFunction_GET_KW_DEFAULTS(fn->real.get()))
      kwdefaults = tr.wrap(d, tr.sources().derived(SourceKind::FuncKwDefaults, fn->source));
  }
  for (int i = 0; i < positional; ++i) {
    auto& slot = f.locals[static_cast<size_t>(i)];
    if (slot) continue;
    Variable* d = defaults ? tr.force(defaults) : nullptr;
    int n = d && d->is(Kind::Tuple) ? static_cast<int>(d->as<TupleVariable>()->elements.size()) : 0;
    if (i < positional - n) raise_misbound(tr, fn, args);
    slot = d->as<TupleVariable>()->elements[static_cast<size_t>(i - (positional - n))];
  }
  for (int i = positional; i < named; ++i) {
    auto& slot = f.locals[static_cast<size_t>(i)];
    if (slot) continue;
    Variable* d = kwdefaults ? tr.force(kwdefaults) : nullptr;
    if (d && d->is(Kind::Dict)) slot = d->as<DictVariable>()->get(tr, f.code->local_name(i));
    if (!slot) raise_misbound(tr, fn, args);
  }
  // Free variables are the last slots.
  int frees = f.code->num_frees, first = f.code->num_locals_plus - frees;
  if (!frees) return;
  if (fn->real) {
    PyObject* closure = PyFunction_GET_CLOSURE(fn->real.get());
    SourceId s = tr.sources().derived(SourceKind::FuncClosure, fn->source);
    for (int i = 0; i < frees; ++i)
      f.locals[static_cast<size_t>(first + i)] =
          tr.force(tr.wrap(PyTuple_GET_ITEM(closure, i), tr.sources().tuple_item(s, i)));
  } else {
    const auto& cells = tr.force(fn->closure)->as<TupleVariable>()->elements;
    for (int i = 0; i < frees; ++i) f.locals[static_cast<size_t>(first + i)] = cells[static_cast<size_t>(i)];
  }
}

// Once torch.compile was called, PyTorch keeps its own capture out of the functions with which its optimizers make
// their states and call their fused kernels; no mark of the user's is meant. The function behind the mark, or nothing.
static Ref kept_out_of_optimizer(PyObject* function) {
  Ref own = Ref::steal(
      native::attr(Ground::conservative(), function, pytorch::interned(pytorch::Attribute::function_behind)));
  Ref module = own ? Ref::steal(native::attr(Ground::conservative(), own.get(), "__module__")) : Ref();
  Ref name = own ? Ref::steal(native::attr(Ground::conservative(), own.get(), "__name__")) : Ref();
  PyErr_Clear();
  if (!module || !name || !PyUnicode_Check(module.get()) || !PyUnicode_Check(name.get())) return Ref();
  std::string_view of = PyUnicode_AsUTF8(module.get()), called = PyUnicode_AsUTF8(name.get());
  bool optimizer = of.substr(0, 12) == "torch.optim." &&
                   (called == pytorch::text(pytorch::Attribute::init_group) || called.substr(0, 7) == "_fused_");
  return optimizer ? std::move(own) : Ref();
}

// The function that torch.compile has wrapped: captured as if it had not been, as torch.compile itself does. nullptr:
// the function is no such wrapper.
static Variable* behind_torch_compile(Translator& tr, FunctionVariable* fn) {
  if (!fn->source.valid() || PyUnicode_CompareWithASCIIString(fn->code_object()->co_name, "compile_wrapper"))
    return nullptr;
  static PyObject* mark = pytorch::interned(pytorch::Attribute::function_behind);
  Ref own = Ref::steal(native::attr(Ground::guarded(fn->source), fn->real.get(), mark));
  PyErr_Clear();
  if (!own) return nullptr;
  guard_code(tr, fn);
  return tr.force(
      tr.wrap(own.get(), tr.sources().dict_item(tr.sources().derived(SourceKind::MadeDict, fn->source), mark)));
}

static bool is_async(PyCodeObject* co) {
  return co->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE);
}

bool is_evaluated(PyObject* function) {
  auto* co = reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function));
  return !is_disabled(function) && !of_import_system(co) && !is_async(co);
}

void guard_code(Translator& tr, FunctionVariable* fn) {
  if (fn->code_guarded) return;
  fn->code_guarded = true;
  PyObject* real = fn->real.get();
  tr.guard_identity(tr.sources().derived(SourceKind::FuncCode, fn->source), PyFunction_GET_CODE(real));
  for (PyObject* mark : disabling_marks())
    if (fn->source.valid())
      tr.guards().absent(tr.sources().dict_item(tr.sources().derived(SourceKind::MadeDict, fn->source), mark),
                         tr.line());
  if (!fn->anchored)
    tr.guard_identity(tr.sources().derived(SourceKind::FuncGlobals, fn->source), PyFunction_GET_GLOBALS(real));
}

Frame* frame_of(Translator& tr, FunctionVariable* fn) {
  Frame* f = tr.new_frame();
  f->code = &decode(fn->code_object());
  f->function = fn;
  f->locals.resize(static_cast<size_t>(f->code->num_locals_plus));
  f->stack.resize(static_cast<size_t>(f->code->max_stack) + 2);
  if (PyObject* real = fn->real.get()) {
    f->globals = PyFunction_GET_GLOBALS(real);
    f->builtins = reinterpret_cast<PyFunctionObject*>(real)->func_builtins;
    f->globals_source = tr.sources().constant(f->globals);
  } else {
    f->globals = fn->globals;
    f->builtins = fn->builtins;
    f->globals_source = fn->globals_source;
  }
  return f;
}

Variable* inline_function(Translator& tr, FunctionVariable* fn, Args& args, bool resumable) {
  PyObject* real = fn->real.get();
  PyCodeObject* co = fn->code_object();
  if (real) {
    if (real == markers().graph_break) tr.unsupported(Reason::ExplicitBreak, "");
    if (real == markers().is_compiling) return tr.boolean(tr.is_compiling(), Ground::pure(fn, args));
    if (BuiltinHandler handler = find_builtin(real)) {
      for (Variable*& a : args.pos) a = tr.force(a);
      if (Variable* v = handler(tr, args)) return v;
    }
    if (of_numpy(real))
      if (Variable* v = call_numpy(tr, real, args)) return v;
    if (PyObject* by = find_substitute(real))
      return tr.call(tr.global_object(by, Ground::pure(fn, args)), args, resumable);
    if (has_constant_result(real)) tr.segment().here_only = "a result that the program calls constant";
    if (has_constant_result(real))
      if (Variable* v = tr.real.call_once(real, fn, args)) return v;
    if (const char* name = find_polyfill(real)) return tr.call(tr.real.polyfill(name), args, resumable);
    if (is_pure(real) &&
        std::all_of(args.pos.begin(), args.pos.end(), [&](Variable* a) { return tr.real.is_python_constant(a); }) &&
        std::all_of(args.kw.begin(), args.kw.end(),
                    [&](const auto& a) { return tr.real.is_python_constant(a.second); }))
      return tr.real.call_pure(real, args);
    if (BuiltinHandler handler = find_builtin(reinterpret_cast<PyObject*>(co))) {
      // Closures of the standard library are known by their code; the function itself comes first.
      Args all{{fn}, args.kw};
      for (Variable* a : args.pos) all.pos.push_back(tr.force(a));
      if (Variable* v = handler(tr, all)) return v;
    }
    if (is_disabled(real)) {
      if (Ref own = kept_out_of_optimizer(real))
        return tr.call(tr.global_object(tr.keep(own), Ground::pure(fn, args)), args, resumable);
      tr.unsupported(Reason::DisabledFunction, fn->describe() + why_disabled(real));
    }
    if (Variable* own = behind_torch_compile(tr, fn)) return tr.call(own, args, resumable);
    guard_code(tr, fn);
  }
  if (of_import_system(co)) tr.unsupported(Reason::UnknownFunction, fn->describe());
  if (is_async(co)) tr.unsupported("an async function");
  Frame* f = frame_of(tr, fn);
  bind_arguments(tr, fn, args, *f);
  return tr.run_in(f, tr.frame(), resumable);
}

}  // namespace braze::capture
