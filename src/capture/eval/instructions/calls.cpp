// Calls, what a frame returns or yields, imports.
#include <optional>

#include "capture/eval/checks.h"
#include "capture/eval/instructions/instructions.h"
#include "capture/eval/library_objects.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_number.h"

namespace braze::capture {

void Instructions::ReturnValue(Execution& x) {
  Variable* v = x.ins.op == Opcode::ReturnConst ? x.tr.load_const(x.f.code->constant(x.ins.arg)) : x.f.pop();
  x.tr.set_yielded(false);
  x.result = v;
}
void Instructions::ReturnConst(Execution& x) { ReturnValue(x); }

void Instructions::ReturnGenerator(Execution& x) {
  if (!x.f.function) x.tr.unsupported("a generator as the compiled function");
  auto* g = x.tr.make<GeneratorVariable>(&x.f);
  x.f.is_generator = true;
  x.tr.made_generator(g);
  x.f.ip = x.next;
  x.tr.set_yielded(false);
  x.result = g;
}

void Instructions::YieldValue(Execution& x) {
  if (!x.f.is_generator) x.tr.unsupported("yield in the compiled function");
  Variable* v = x.f.pop();
  x.f.ip = x.next;
  x.tr.set_yielded(true);
  x.result = v;
}

void Instructions::KwNames(Execution& x) { x.f.kw_names = x.f.code->constant(x.ins.arg); }

// bool(t), t.item() and the like of a tensor whose number a check of the run is about to use: it stays in the graph.
static bool reads_for_check(Execution& x, Variable* callee, const Args& args) {
  if (!args.kw.empty()) return false;
  callee = x.tr.force(callee);
  static PyObject* const item = tensor_method("item");
  bool reads;
  if (callee->is(Kind::BuiltinMethod)) {
    reads = args.size() == 0 && callee->as<BuiltinMethodVariable>()->descr.get() == item;
  } else {
    PyObject* c = callee->as_constant();
    bool number = c == reinterpret_cast<PyObject*>(&PyBool_Type) || c == reinterpret_cast<PyObject*>(&PyLong_Type) ||
                  c == reinterpret_cast<PyObject*>(&PyFloat_Type);
    reads = number && args.size() == 1 && PyType_IsSubtype(args[0]->type(), library().tensor);  // floats stay open
  }
  return reads && awaits_check(x.tr, x.f);
}

static void call(Execution& x, PyObject* names) {
  int n = x.ins.arg;
  Args args;
  x.f.sp -= n;
  auto* at = x.f.stack.data() + x.f.sp;
  Variable *upper = x.f.pop(), *lower = x.f.pop();
  auto [callee, self] = cpython::called(lower, upper);
  if (self) args.pos.push_back(self);
  int named = names ? static_cast<int>(PyTuple_GET_SIZE(names)) : 0;
  for (int i = 0; i < n - named; ++i) args.pos.push_back(at[i]);
  for (int i = 0; i < named; ++i) args.kw.emplace_back(PyTuple_GET_ITEM(names, i), at[n - named + i]);
  std::optional<OpenNumbers> open;
  if (reads_for_check(x, callee, args)) open.emplace(x.tr);
  x.f.push(x.tr.call(callee, std::move(args), true));
}

void Instructions::Call(Execution& x) { call(x, std::exchange(x.f.kw_names, nullptr)); }
void Instructions::CallKw(Execution& x) {
  x.f.pop();  // loaded by the instruction before
  call(x, x.f.code->constant(x.f.code->instructions[static_cast<size_t>(x.f.ip) - 1].arg));
}

void Instructions::CallFunctionEx(Execution& x) {
  Variable* kw = x.ins.arg & 1 ? x.f.pop() : nullptr;
  if (kw) kw = x.tr.force(kw);
  Variable* pos = x.f.pop();
  Variable *upper = x.f.pop(), *lower = x.f.pop();
  Variable* callee = cpython::called(lower, upper).callable;
  pos = x.tr.force(pos);
  if (!x.tr.can_iterate(pos))
    x.tr.raise(PyExc_TypeError,
               x.tr.text_of_callee(callee) + " argument after * must be an iterable, not " + x.tr.name_of(pos->type()));
  Args args;
  args.pos = x.tr.listed(pos);
  if (kw) {
    if (kw->is(Kind::Object) && kw->as<ObjectVariable>()->base) kw = kw->as<ObjectVariable>()->base;
    if (!kw->is(Kind::Dict)) x.tr.unsupported("keyword arguments from " + kw->describe());
    for (const auto& e : kw->as<DictVariable>()->entries(x.tr)) {
      PyObject* name = constant_of(x.tr.force(e.key));
      if (!name || !PyUnicode_Check(name)) x.tr.raise(PyExc_TypeError, "keywords must be strings");
      args.kw.emplace_back(x.tr.keep(Ref::borrow(name)), e.value);
    }
  }
  x.f.push(x.tr.call(callee, std::move(args), true));
}

// The compiler gives annotations as a tuple of names and values in turn.
static Variable* annotations_dict(Translator& tr, Variable* v) {
  v = tr.force(v);
  if (!v->is(Kind::Tuple)) return v;
  auto* d = tr.dict();
  const auto& e = v->as<TupleVariable>()->elements;
  for (size_t i = 0; i + 1 < e.size(); i += 2) d->set(tr, e[i], e[i + 1]);
  return d;
}

static void set_function_attribute(Translator& tr, FunctionVariable* fn, int flag, Variable* v) {
  switch (flag) {
    case 8: fn->closure = v; break;
    case 4: fn->annotations = annotations_dict(tr, v); break;
    case 2: fn->kwdefaults = v; break;
    case 16: fn->annotate = v; break;
    default: fn->defaults = v;
  }
}

void Instructions::MakeFunction(Execution& x) {
  int flags = x.ins.arg;
  Variable* code = x.tr.force(x.f.pop());
  PyObject* co = code->as_constant();
  auto* fn = x.tr.make<FunctionVariable>(co);
  fn->globals = x.f.globals;
  fn->builtins = x.f.builtins;
  fn->globals_source = x.f.globals_source;
  for (int flag : {8, 4, 2, 1})
    if (flags & flag) set_function_attribute(x.tr, fn, flag, x.f.pop());
  x.f.push(fn);
}

void Instructions::SetFunctionAttribute(Execution& x) {
  auto* fn = x.f.pop()->as<FunctionVariable>();
  set_function_attribute(x.tr, fn, x.ins.arg, x.f.pop());
  x.f.push(fn);
}

// A special method of an object, bound; nullptr: its class has none.
static Variable* special_method(Translator& tr, Variable* object, const char* name) {
  SourceId at;
  PyObject* d = tr.attributes.lookup_on_type(object->type(), tr.intern(name), &at);
  return d ? tr.attributes.bind_descriptor(d, at, object, object->type(), tr.intern(name)) : nullptr;
}

void Instructions::LoadSpecial(Execution& x) {
  if (x.ins.arg > 1) x.tr.unsupported(Reason::UnsupportedBytecode, std::string(opcode_name(x.ins.op)));
  Variable* manager = x.tr.force(x.f.pop());
  const char* name = x.ins.arg == 0 ? "__enter__" : "__exit__";
  if (Variable* method = special_method(x.tr, manager, name)) return x.f.push_callable(method);
  auto has = [&](const char* method) {
    return x.tr.attributes.lookup_on_type(manager->type(), x.tr.intern(method), nullptr) != nullptr;
  };
  bool async = has("__aenter__") && has("__aexit__");
  x.tr.raise(
      PyExc_TypeError,
      "'" + x.tr.name_of_owner(manager->type()) + "' object does not support the context manager protocol (missed " +
          name + " method)" +
          (async ? " but it supports the asynchronous context manager protocol. Did you mean to use 'async with'?"
                 : ""));
}

void Instructions::BeforeWith(Execution& x) {
  Variable* manager = x.tr.force(x.f.pop());
  auto method = [&](const char* name, const char* missed = "") {
    Variable* found = special_method(x.tr, manager, name);
    if (!found)
      x.tr.raise(PyExc_TypeError, "'" + x.tr.name_of(manager->type()) +
                                      "' object does not support the context manager protocol" + missed);
    return found;
  };
  Variable *enter = method("__enter__"), *exit = method("__exit__", " (missed __exit__ method)");
  // While __enter__ runs, the frame has __exit__ in place of the manager; an instruction that can't be captured finds
  // the latter.
  x.f.push(exit);
  Variable* result;
  try {
    result = x.tr.call(enter, Args{}, true);
  } catch (const Unsupported&) {
    x.f.top() = manager;
    throw;
  }
  x.f.push(result);
}

void Instructions::LoadBuildClass(Execution& x) {
  static PyObject* build = native::builtin("__build_class__");
  x.f.push(x.tr.global_object(build, Ground::fixed()));
}

void Instructions::ImportName(Execution& x) {
  Ref from = x.tr.real.to_python(x.f.pop()), level = x.tr.real.to_python(x.f.pop());
  // Importing what is imported already has no effects; what is not would be imported by the code as well.
  Ref m = Ref::steal(PyImport_ImportModuleLevelObject(x.f.code->name(x.ins.arg), x.f.globals, nullptr, from.get(),
                                                      static_cast<int>(PyLong_AsLong(level.get()))));
  if (!m) x.tr.raise_current();
  // The module of that name is what sys.modules says.
  PyObject* modules = PyImport_GetModuleDict();
  Ref name = Ref::steal(PyModule_Check(m.get()) ? PyModule_GetNameObject(m.get()) : nullptr);
  PyErr_Clear();
  SourceId at = name ? x.tr.sources().dict_item(x.tr.sources().constant(modules), name.get()) : SourceId();
  if (!name || native::item(Ground::guarded(at), modules, name.get()) != m.get())
    x.tr.unsupported("a module that is not imported under its name");
  x.tr.guards().exists(at, x.tr.line());
  x.f.push(x.tr.wrap(m.get(), at));
}

void Instructions::ImportFrom(Execution& x) {
  Variable* v = x.tr.getattr_or_null(x.f.top(), x.f.code->name(x.ins.arg));
  if (!v) x.tr.unsupported("a name to import that is not there");
  x.f.push(v);
}

void Instructions::GetYieldFromIter(Execution& x) {
  Variable* v = x.tr.force(x.f.pop());
  x.f.push(v->is(Kind::Generator) ? v : x.tr.iter(v));
}

void Instructions::Send(Execution& x) {
  Variable* value = x.f.pop();
  Variable* receiver = x.tr.force(x.f.top());
  Variable *yielded = nullptr, *result = x.tr.none();
  x.tr.mutate();
  if (receiver->is(Kind::Generator)) {
    auto* g = receiver->as<GeneratorVariable>();
    yielded = g->send(x.tr, value);
    if (!yielded) result = g->result;
  } else if (is_none(x.tr.force(value)) && receiver->is(Kind::Object)) {
    // The end of an iterator of the user's may carry a value.
    SourceId at;
    PyObject* method = x.tr.attributes.lookup_on_type(receiver->type(), x.tr.intern("__next__"), &at);
    if (!method)
      x.tr.raise(PyExc_TypeError, std::string("'") + x.tr.name_of(receiver->type()) + "' object is not an iterator");
    try {
      yielded =
          x.tr.call(x.tr.attributes.bind_descriptor(method, at, receiver, receiver->type(), x.tr.intern("__next__")),
                    std::vector<Variable*>{});
    } catch (PyRaise& e) {
      if (!x.tr.is_instance(e.exception, PyExc_StopIteration)) throw;
      result = x.tr.getattr(e.exception, "value");
    }
  } else if (is_none(x.tr.force(value))) {
    yielded = x.tr.next(receiver);
  } else {
    try {
      yielded = x.tr.call_method(receiver, "send", {value});
    } catch (PyRaise& e) {
      if (!x.tr.is_instance(e.exception, PyExc_StopIteration)) throw;
      result = x.tr.getattr(e.exception, "value");
    }
  }
  if (yielded) {
    x.f.push(yielded);
    return;
  }
  x.tr.finish_send(x.f, x.ins, result);
  x.next = x.f.ip;
}

void Instructions::EndSend(Execution& x) {
  Variable* v = x.f.pop();
  x.f.pop();
  x.f.push(v);
}

}  // namespace braze::capture
