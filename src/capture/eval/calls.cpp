// Calls: binding of arguments, inlining, making instances.
#include <string_view>

#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/markers.h"
#include "capture/builtins/signature_errors.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"

namespace braze::capture {

Frame* Translator::new_frame() {
  frames_.push_back(std::make_unique<Frame>());
  return frames_.back().get();
}

void Translator::call_instruction(Frame& f, int n) {
  Args args;
  f.sp -= n;
  auto* at = f.stack.data() + f.sp;
  Variable *second = f.pop(), *first = f.pop();
  Variable* callee = second;
  if (first) {
    callee = first;
    args.pos.push_back(second);
  }
  int named = 0;
  PyObject* names = std::exchange(f.kw_names, nullptr);
  if (names) named = static_cast<int>(PyTuple_GET_SIZE(names));
  for (int i = 0; i < n - named; ++i) args.pos.push_back(at[i]);
  for (int i = 0; i < named; ++i) args.kw.emplace_back(PyTuple_GET_ITEM(names, i), at[n - named + i]);
  f.push(call(callee, std::move(args), true));
}

void Translator::call_ex_instruction(Frame& f, bool keywords) {
  Variable* kw = keywords ? force(f.pop()) : nullptr;
  Variable* pos = f.pop();
  Variable* callee = f.pop();
  f.pop();
  Args args;
  args.pos = unpack(pos);
  if (kw) {
    if (kw->is(Kind::Object) && kw->as<ObjectVariable>()->base) kw = kw->as<ObjectVariable>()->base;
    if (!kw->is(Kind::Dict)) unsupported("keyword arguments from " + kw->describe());
    for (const auto& e : kw->as<DictVariable>()->entries(*this)) {
      PyObject* name = constant_of(force(e.key));
      if (!name || !PyUnicode_Check(name)) raise(PyExc_TypeError, "keywords must be strings");
      args.kw.emplace_back(keep(Ref::borrow(name)), e.value);
    }
  }
  f.push(call(callee, std::move(args), true));
}

void Translator::make_function(Frame& f, int flags) {
  Variable* code = force(f.pop());
  PyObject* co = code->as_constant();
  auto* fn = make<FunctionVariable>(co);
  fn->globals = f.globals;
  fn->builtins = f.builtins;
  fn->globals_source = f.globals_source;
  if (flags & 8) fn->closure = f.pop();
  if (flags & 4) fn->annotations = annotations_dict(f.pop());
  if (flags & 2) fn->kwdefaults = f.pop();
  if (flags & 1) fn->defaults = f.pop();
  f.push(fn);
}

// The compiler gives annotations as a tuple of names and values in turn.
Variable* Translator::annotations_dict(Variable* v) {
  v = force(v);
  if (!v->is(Kind::Tuple)) return v;
  auto* d = dict();
  const auto& e = v->as<TupleVariable>()->elements;
  for (size_t i = 0; i + 1 < e.size(); i += 2) d->set(*this, e[i], e[i + 1]);
  return d;
}

void Translator::before_with(Frame& f) {
  Variable* manager = force(f.pop());
  SourceId at;
  auto method = [&](const char* name, const char* missed = "") -> Variable* {
    PyObject* d = lookup_on_type(manager->type(), intern(name), &at);
    if (!d) raise(PyExc_TypeError, std::string("'") + manager->type()->tp_name + "' object does not support the context manager protocol" + missed);
    return bind_descriptor(d, at, manager, manager->type(), intern(name));
  };
  Variable *enter = method("__enter__"), *exit = method("__exit__", " (missed __exit__ method)");
  // While __enter__ runs, the frame has __exit__ in place of the manager; an instruction that can't be captured finds the latter.
  f.push(exit);
  Variable* result;
  try {
    result = call(enter, Args{}, true);
  } catch (const Unsupported&) {
    f.top() = manager;
    throw;
  }
  f.push(result);
}

// ---- inlining ----

// Once torch.compile was called, PyTorch keeps its own capture out of the functions with which its optimizers make their states and call
// their fused kernels; no mark of the user's is meant. The function behind the mark, or nothing.
static Ref kept_out_of_optimizer(PyObject* function) {
  Ref own = Ref::steal(native::attr(Ground::conservative(), function, "_torchdynamo_orig_callable"));
  Ref module = own ? Ref::steal(native::attr(Ground::conservative(), own.get(), "__module__")) : Ref();
  Ref name = own ? Ref::steal(native::attr(Ground::conservative(), own.get(), "__name__")) : Ref();
  PyErr_Clear();
  if (!module || !name || !PyUnicode_Check(module.get()) || !PyUnicode_Check(name.get())) return Ref();
  std::string_view of = PyUnicode_AsUTF8(module.get()), called = PyUnicode_AsUTF8(name.get());
  bool optimizer = of.substr(0, 12) == "torch.optim." && (called == "_init_group" || called.substr(0, 7) == "_fused_");
  return optimizer ? std::move(own) : Ref();
}

Variable* Translator::inline_function(FunctionVariable* fn, Args& args, bool resumable) {
  PyObject* real = fn->real.get();
  PyCodeObject* co = fn->code_object();
  if (real) {
    if (real == markers().graph_break) unsupported(Reason::ExplicitBreak, "");
    if (real == markers().is_compiling) return boolean(true, Ground::pure(fn, args));
    if (BuiltinHandler handler = find_builtin(real)) {
      for (Variable*& a : args.pos) a = force(a);
      if (Variable* v = handler(*this, args)) return v;
    }
    if (of_numpy(real))
      if (Variable* v = call_numpy(*this, real, args)) return v;
    if (const char* name = find_polyfill(real)) return call(polyfill(name), args, resumable);
    if (is_pure(real) && std::all_of(args.pos.begin(), args.pos.end(), [&](Variable* a) { return is_python_constant(a); }) &&
        std::all_of(args.kw.begin(), args.kw.end(), [&](const auto& a) { return is_python_constant(a.second); }))
      return call_pure(real, args);
    if (BuiltinHandler handler = find_builtin(reinterpret_cast<PyObject*>(co))) {
      // Closures of the standard library are known by their code; the function itself comes first.
      Args all{{fn}, args.kw};
      for (Variable* a : args.pos) all.pos.push_back(force(a));
      if (Variable* v = handler(*this, all)) return v;
    }
    if (is_disabled(real)) {
      if (Ref own = kept_out_of_optimizer(real)) return call(global_object(keep(own), Ground::pure(fn, args)), args, resumable);
      unsupported(Reason::DisabledFunction, fn->describe());
    }
    if (!fn->code_guarded) {
      fn->code_guarded = true;
      guard_identity(sources().derived(SourceKind::FuncCode, fn->source), reinterpret_cast<PyObject*>(co));
      for (PyObject* mark : disabling_marks())
        if (fn->source.valid()) guards().absent(sources().dict_item(sources().derived(SourceKind::MadeDict, fn->source), mark), line());
      if (!fn->anchored) guard_identity(sources().derived(SourceKind::FuncGlobals, fn->source), PyFunction_GET_GLOBALS(real));
    }
  }
  if (of_import_system(co)) unsupported(Reason::UnknownFunction, fn->describe());
  if (co->co_flags & (CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE)) unsupported("an async function");
  Frame* f = new_frame();
  f->code = &decode(co);
  f->function = fn;
  f->locals.resize(static_cast<size_t>(f->code->num_locals_plus));
  f->stack.resize(static_cast<size_t>(f->code->max_stack) + 2);
  if (real) {
    f->globals = PyFunction_GET_GLOBALS(real);
    f->builtins = reinterpret_cast<PyFunctionObject*>(real)->func_builtins;
    f->globals_source = sources().constant(f->globals);
  } else {
    f->globals = fn->globals;
    f->builtins = fn->builtins;
    f->globals_source = fn->globals_source;
  }
  bind_arguments(fn, args, *f);
  return run_in(f, frame_, resumable);
}

// The error of a call whose arguments don't fit the parameters, in CPython's words: it comes before the function runs, so one with
// the same parameters and as many defaults raises it, too.
[[noreturn]] static void raise_misbound(Translator& tr, FunctionVariable* fn, const Args& args) {
  PyCodeObject* co = fn->code_object();
  Ref globals = Ref::steal(PyDict_New());
  Ref like = Ref::steal(PyFunction_NewWithQualName(reinterpret_cast<PyObject*>(co), globals.get(), co->co_qualname));
  if (!like) tr.raise_current();
  if (fn->real) {
    // What the error rests on, and its words.
    for (const char* read : {"__defaults__", "__kwdefaults__", "__qualname__"})
      if (Variable* v = tr.force(fn->getattr(tr, tr.intern(read))); v->is(Kind::Dict)) v->as<DictVariable>()->entries(tr);
    if (PyObject* d = PyFunction_GET_DEFAULTS(fn->real.get())) PyFunction_SetDefaults(like.get(), d);
    if (PyObject* d = PyFunction_GET_KW_DEFAULTS(fn->real.get())) PyFunction_SetKwDefaults(like.get(), d);
    Ref qualname = Ref::steal(native::attr(Ground::conservative(), fn->real.get(), "__qualname__"));
    PyObject_SetAttrString(like.get(), "__qualname__", qualname.get());
  } else {
    Variable* d = fn->defaults ? tr.force(fn->defaults) : nullptr;
    if (d && d->is(Kind::Tuple)) {
      Ref nones = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(d->as<TupleVariable>()->elements.size())));
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(nones.get()); ++i) PyTuple_SET_ITEM(nones.get(), i, Py_NewRef(Py_None));
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

void Translator::bind_arguments(FunctionVariable* fn, Args& args, Frame& f) {
  PyCodeObject* co = f.code->code;
  int positional = co->co_argcount, kwonly = co->co_kwonlyargcount, named = positional + kwonly;
  bool star = co->co_flags & CO_VARARGS, star_star = co->co_flags & CO_VARKEYWORDS;
  int given = static_cast<int>(args.pos.size());
  for (int i = 0; i < std::min(given, positional); ++i) f.locals[static_cast<size_t>(i)] = args.pos[static_cast<size_t>(i)];
  if (star) f.locals[static_cast<size_t>(named)] = tuple(given > positional ? std::vector<Variable*>(args.pos.begin() + positional, args.pos.end()) : std::vector<Variable*>{});
  else if (given > positional) raise_misbound(*this, fn, args);
  DictVariable* more = nullptr;
  if (star_star) f.locals[static_cast<size_t>(named + star)] = more = dict();
  for (auto& [name, value] : args.kw) {
    int at = -1;
    for (int i = co->co_posonlyargcount; i < named && at < 0; ++i)
      if (f.code->local_name(i) == name) at = i;
    for (int i = co->co_posonlyargcount; i < named && at < 0; ++i)
      if (PyUnicode_Compare(f.code->local_name(i), name) == 0) at = i;
    if (at >= 0) {
      if (f.locals[static_cast<size_t>(at)]) raise_misbound(*this, fn, args);
      f.locals[static_cast<size_t>(at)] = value;
    } else if (more) {
      more->set(*this, name, value);
    } else {
      raise_misbound(*this, fn, args);
    }
  }
  Variable *defaults = fn->defaults, *kwdefaults = fn->kwdefaults;
  if (fn->real) {
    if (PyObject* d = PyFunction_GET_DEFAULTS(fn->real.get())) defaults = wrap(d, sources().derived(SourceKind::FuncDefaults, fn->source));
    if (PyObject* d = PyFunction_GET_KW_DEFAULTS(fn->real.get())) kwdefaults = wrap(d, sources().derived(SourceKind::FuncKwDefaults, fn->source));
  }
  for (int i = 0; i < positional; ++i) {
    auto& slot = f.locals[static_cast<size_t>(i)];
    if (slot) continue;
    Variable* d = defaults ? force(defaults) : nullptr;
    int n = d && d->is(Kind::Tuple) ? static_cast<int>(d->as<TupleVariable>()->elements.size()) : 0;
    if (i < positional - n) raise_misbound(*this, fn, args);
    slot = d->as<TupleVariable>()->elements[static_cast<size_t>(i - (positional - n))];
  }
  for (int i = positional; i < named; ++i) {
    auto& slot = f.locals[static_cast<size_t>(i)];
    if (slot) continue;
    Variable* d = kwdefaults ? force(kwdefaults) : nullptr;
    if (d && d->is(Kind::Dict)) slot = d->as<DictVariable>()->get(*this, f.code->local_name(i));
    if (!slot) raise_misbound(*this, fn, args);
  }
  // Free variables are the last slots.
  int frees = f.code->num_frees, first = f.code->num_locals_plus - frees;
  if (!frees) return;
  if (fn->real) {
    PyObject* closure = PyFunction_GET_CLOSURE(fn->real.get());
    SourceId s = sources().derived(SourceKind::FuncClosure, fn->source);
    for (int i = 0; i < frees; ++i)
      f.locals[static_cast<size_t>(first + i)] = force(wrap(PyTuple_GET_ITEM(closure, i), sources().tuple_item(s, i)));
  } else {
    const auto& cells = force(fn->closure)->as<TupleVariable>()->elements;
    for (int i = 0; i < frees; ++i) f.locals[static_cast<size_t>(first + i)] = cells[static_cast<size_t>(i)];
  }
}

// ---- instances ----

Variable* Translator::instantiate(PyTypeObject* cls, Args& args) {
  auto* cls_object = reinterpret_cast<PyObject*>(cls);
  PyTypeObject* meta = Py_TYPE(cls);
  if (meta != &PyType_Type) {
    SourceId at;
    PyObject* call_method = lookup_on_type(meta, intern("__call__"), &at);
    if (PyType_IsSubtype(meta, Py_TYPE(library().enum_))) {
      PyObject* call_stock = native::type_attr(Ground::conservative(), Py_TYPE(library().enum_), "__call__");
      Ref new_stock = Ref::steal(native::attr(Ground::conservative(), reinterpret_cast<PyObject*>(library().enum_), "__new__"));
      bool stock = lookup_on_type(meta, intern("__call__"), nullptr) == call_stock && lookup_on_type(cls, intern("__new__"), nullptr) == new_stock.get();
      if (stock && args.size() == 1 && args.kw.empty() && is_python_constant(args[0]) && force(args[0])->type() != cls)
        if (Variable* member = enum_member(*this, cls, "_value2member_map_", args[0])) return member;
      lookup_on_type(cls, intern("_missing_"), nullptr);
      return call_pure(cls_object, args);
    }
    if (call_method && PyFunction_Check(call_method)) {
      args.pos.insert(args.pos.begin(), global_object(cls_object, Ground::pure(args)));
      return call(force(wrap(call_method, at)), args);
    }
    if (call_method && PyType_Check(call_method)) return call(at.valid() ? wrap(call_method, at) : global_object(call_method, Ground::pure(args)), args);
  }
  if (PyType_IsSubtype(cls, library().tensor)) unsupported(Reason::UnsupportedTensor, std::string("a tensor of class ") + cls->tp_name + " is made");
  if (PyType_IsSubtype(cls, &PyType_Type)) unsupported("a class is made");
  if (PyType_IsSubtype(cls, &PyProperty_Type) && args.kw.empty() && args.size() == 1 && force(args[0])->is(Kind::Function)) {
    // PyTorch's own properties hold a function and nothing else: one is as good as another.
    Ref module = Ref::steal(native::attr(Ground::fixed(), cls_object, "__module__"));
    const char* text = module && PyUnicode_Check(module.get()) ? PyUnicode_AsUTF8(module.get()) : "";
    PyObject* wrapped = args[0]->as<FunctionVariable>()->real.get();
    if (wrapped && std::string_view(text).starts_with("torch.")) {
      guard_identity(args[0]->source, wrapped);
      Ref made = Ref::steal(PyObject_CallOneArg(cls_object, wrapped));
      if (!made) raise_current();
      return global_object(keep(made), Ground::pure(args));
    }
  }
  if (cls->tp_flags & Py_TPFLAGS_IS_ABSTRACT) {  // said by the interpreter itself
    Ref empty = Ref::steal(PyTuple_New(0)), refused = Ref::steal(PyBaseObject_Type.tp_new(cls, empty.get(), nullptr));
    if (!refused) raise_current();
  }
  if (is_constant_type(cls) && !(cls->tp_flags & Py_TPFLAGS_HEAPTYPE) && std::string_view(cls->tp_name).starts_with("numpy.")) return call_pure(cls_object, args);
  if (!cls->tp_new) raise(PyExc_TypeError, std::string("cannot create '") + cls->tp_name + "' instances");
  SourceId new_at, init_at;
  PyObject* make_new = lookup_on_type(cls, intern("__new__"), &new_at);
  Variable* made;
  if (lookup_on_type(cls, intern("__del__"), nullptr)) unsupported(std::string("an object of class ") + cls->tp_name + ", which has a finalizer, is made");
  if (make_new && PyCFunction_Check(make_new) && PyCFunction_GET_SELF(make_new) && PyType_Check(PyCFunction_GET_SELF(make_new))) {
    // The __new__ of a class that decides how objects are laid out, and no other.
    PyTypeObject* layout = cls;
    while ((layout->tp_flags & Py_TPFLAGS_HEAPTYPE) && layout->tp_base) layout = layout->tp_base;
    auto* of = reinterpret_cast<PyTypeObject*>(PyCFunction_GET_SELF(make_new));
    if (!PyType_IsSubtype(cls, of) || (layout->tp_new != of->tp_new && !PyType_IsSubtype(of, layout)))
      unsupported(Reason::RaisedException, std::string(of->tp_name) + ".__new__ makes an object of class " + cls->tp_name);
  }
  if (make_new == library().object_new || !make_new) {
    made = make<ObjectVariable>(cls, PyType_IsSubtype(cls, library().module) ? Kind::Module : Kind::Object);
  } else if (PyCFunction_Check(make_new)) {
    made = builtin_new(cls, make_new, args);
  } else {
    Args with_class = args;
    with_class.pos.insert(with_class.pos.begin(), global_object(cls_object, Ground::pure(args)));
    // Found through the class, so that what would bind to an instance stays as it is.
    bool binds_to_instances = PyFunction_Check(make_new) || Py_TYPE(make_new) == library().lru_cache;
    Variable* fn = binds_to_instances && new_at.valid() ? wrap(make_new, new_at) : bind_descriptor(make_new, new_at, global_object(cls_object, Ground::pure(args)), cls, intern("__new__"));
    made = force(call(fn, with_class));
  }
  if (!PyType_IsSubtype(made->type(), cls)) return made;
  PyObject* init = lookup_on_type(made->type(), intern("__init__"), &init_at);
  if (!init || init == library().object_init) {
    if (make_new == library().object_new && (args.size() || !args.kw.empty())) raise(PyExc_TypeError, std::string(cls->tp_name) + "() takes no arguments");
    return made;
  }
  if (Py_TYPE(init) == &PyWrapperDescr_Type) {
    if ((!made->is(Kind::Object) && !made->is(Kind::Module)) || cls == library().simple_namespace) return made;
    call_builtin_method(*this, made, reinterpret_cast<PyDescrObject*>(init)->d_type, intern("__init__"), args);
  } else {
    Variable* r = force(call(bind_descriptor(init, init_at, made, made->type(), intern("__init__")), args));
    if (!is_none(r)) raise(PyExc_TypeError, std::string("__init__() should return None, not '") + r->type()->tp_name + "'");
  }
  return made;
}

Variable* Translator::made_class(Ref cls) {
  mutate();
  keep(cls);
  Variable* v = make<RealVariable>(cls.get(), sources().constant(cls.get()));
  global_objects_[cls.get()] = v;
  made_classes_[cls.get()] = v;
  return v;
}

void Translator::check_rebuild(PyTypeObject* cls) const {
  if (auto it = made_classes_.find(reinterpret_cast<PyObject*>(cls)); it != made_classes_.end())
    throw CannotRebuild{it->second, std::string("class ") + cls->tp_name + ", which the code defines,"};
}

// tp_new of a class implemented in C.
Variable* Translator::builtin_new(PyTypeObject* cls, PyObject*, Args& args) {
  const LibraryObjects& k = library();
  if (PyType_IsSubtype(cls, reinterpret_cast<PyTypeObject*>(PyExc_BaseException))) {
    // Some keep more than their arguments; Python code may take keywords in __init__.
    // An OSError or SyntaxError of one argument has no fields besides, and stays of its class.
    auto like = [&](PyObject* e) { return cls->tp_init == reinterpret_cast<PyTypeObject*>(e)->tp_init && cls->tp_new == reinterpret_cast<PyTypeObject*>(e)->tp_new; };
    bool bare = args.size() < 2 && (like(PyExc_OSError) || like(PyExc_SyntaxError));
    if (!is_plain_exception(cls) && !bare) unsupported(std::string("an exception of class ") + cls->tp_name + " is made");
    if (!args.kw.empty()) {
      PyObject* init = lookup_on_type(cls, intern("__init__"), nullptr);
      if (init && !PyFunction_Check(init)) unsupported(std::string("an exception of class ") + cls->tp_name + " is made with keywords");
    }
    auto* e = make<ObjectVariable>(cls);
    e->base = tuple(args.pos);
    return e;
  }
  if (PyType_IsSubtype(cls, &PyTuple_Type)) {
    if (is_structseq(cls)) {
      // Fields that are no items would stay as they are in a sequence of fewer items.
      static PyObject *items = PyUnicode_InternFromString("n_sequence_fields"), *fields = PyUnicode_InternFromString("n_fields");
      PyObject *n = native::item(Ground::fixed(), type_dict(cls), items), *all = native::item(Ground::fixed(), type_dict(cls), fields);
      if (args.size() != 1 || !args.kw.empty() || !n || !all || PyObject_RichCompareBool(n, all, Py_EQ) != 1) unsupported("a struct sequence is made");
      std::vector<Variable*> given = unpack(args[0]);
      if (static_cast<long>(given.size()) != PyLong_AsLong(n)) unsupported(Reason::RaisedException, std::string(cls->tp_name) + "() of another length");
      return make<TupleVariable>(std::move(given), cls);
    }
    bool named = !args.kw.empty() && cls->tp_init == PyTuple_Type.tp_init;
    if (named || args.size() > 1) unsupported(Reason::RaisedException, std::string(cls->tp_name) + "() takes one iterable");
    return make_tuple(cls, args.size() ? unpack(args[0]) : std::vector<Variable*>{});
  }
  if (!cls->tp_new) unsupported(std::string("an object of class ") + cls->tp_name + " is made");
  auto* o = make<ObjectVariable>(cls);
  if (cls == k.simple_namespace && args.size() == 0) {
    for (auto& [name, v] : args.kw) o->instance_set(*this, name, v);
    return o;
  }
  if (PyType_IsSubtype(cls, &PyDict_Type)) {
    if (PyType_IsSubtype(cls, k.default_dict)) unsupported("a subclass of defaultdict");
    o->base = make<DictVariable>(PyType_IsSubtype(cls, k.ordered_dict) ? k.ordered_dict : &PyDict_Type);
    return o;
  }
  if (PyType_IsSubtype(cls, &PyList_Type)) {
    o->base = list({});
    return o;
  }
  if (PyType_IsSubtype(cls, &PySet_Type)) {
    o->base = make<SetVariable>();
    return o;
  }
  if (PyType_IsSubtype(cls, &PyFrozenSet_Type)) {
    bool named = !args.kw.empty() && cls->tp_init == PyFrozenSet_Type.tp_init;
    if (named || args.size() > 1) unsupported(Reason::RaisedException, std::string(cls->tp_name) + "() takes one iterable");
    auto* content = make<SetVariable>(&PyFrozenSet_Type);
    if (args.size()) content->merge(*this, args[0]);
    o->base = content;
    return o;
  }
  // Numbers and texts: the content is what the class in C makes of the arguments.
  for (PyTypeObject* c : {&PyLong_Type, &PyFloat_Type, &PyComplex_Type, &PyUnicode_Type, &PyBytes_Type})
    if (cls != c && PyType_IsSubtype(cls, c) && (cls->tp_flags & Py_TPFLAGS_HEAPTYPE) && !PyType_IsSubtype(cls, k.enum_)) {
      Args copy = args;
      o->base = force(call(global_object(reinterpret_cast<PyObject*>(c), Ground::pure(args)), std::move(copy)));
      if (!o->base->is(Kind::Constant) || o->base->type() != c) unsupported(std::string("an object of class ") + cls->tp_name + " is made");
      return o;
    }
  if (!(cls->tp_flags & Py_TPFLAGS_HEAPTYPE) && (PyType_IsSubtype(cls, &PyLong_Type) || PyType_IsSubtype(cls, &PyFloat_Type) || PyType_IsSubtype(cls, &PyUnicode_Type))) {
    Args copy = args;
    return call_pure(reinterpret_cast<PyObject*>(cls), copy);
  }
  if (!(cls->tp_flags & Py_TPFLAGS_HEAPTYPE)) raise_if_miscalled(*this, reinterpret_cast<PyObject*>(cls), nullptr, args);
  unsupported(Reason::UnknownFunction, std::string("an object of class ") + cls->tp_name + " is made");
}

bool is_plain_exception(PyTypeObject* cls) {
  while ((cls->tp_flags & Py_TPFLAGS_HEAPTYPE) && cls->tp_base) cls = cls->tp_base;
  if (cls->tp_basicsize == sizeof(PyBaseExceptionObject)) return true;
  PyObject* plain[] = {PyExc_StopIteration, PyExc_AttributeError, PyExc_NameError, PyExc_UnboundLocalError, PyExc_ImportError, PyExc_ModuleNotFoundError,
                       PyExc_SystemExit};
  for (PyObject* p : plain)
    if (reinterpret_cast<PyObject*>(cls) == p) return true;
  return false;
}

}  // namespace braze::capture
