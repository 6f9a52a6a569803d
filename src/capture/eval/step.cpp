// One instruction at a time. Operands are popped first and results pushed last, so that an instruction that fails is undone by
// restoring the stack's depth.
#include <opcode.h>

#include "capture/builtins/builtins.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/open_sizes.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_number.h"

namespace braze::capture {

Variable* Translator::run_frame(Frame* frame) {
  Frame& f = *frame;
  if (f.pending) {
    Variable* e = f.pending;
    f.pending = nullptr;
    f.ip -= 1;  // at the yield
    chain_context(force(e), f.handled);
    PyRaise raised{e, origins_.try_emplace(e, ordinal_).first->second};
    if (!handle(f, raised)) throw raised;
  }
  for (;;) {
    const Instruction& ins = f.code->instructions[static_cast<size_t>(f.ip)];
    f.ordinal = ++ordinal_;
    int sp = f.sp;
    PyObject* kw = f.kw_names;
    size_t known = guards().size();
    dirty_ = false;
    try {
      if (!stops_.empty())
        if (auto stop = stops_.find(ordinal_); stop != stops_.end()) throw Unsupported(stop->second.reason, stop->second.detail);
      if (ordinal_ > 20000000) unsupported("a capture of more than 20 million steps");
      if (Variable* result = step(f, ins)) return result;
    } catch (const Unsupported& e) {
      f.sp = sp;
      f.kw_names = kw;
      frame_ = frame;
      guards().truncate(known);  // to stop here is right whatever the instruction saw
      stop_here({e.reason(), e.detail()});
    } catch (PyRaise& raised) {
      frame_ = frame;
      f.kw_names = nullptr;
      if (!handle(f, raised)) throw;
    }
  }
}

Variable* Translator::run_in(Frame* f, Frame* caller, bool resumable) {
  // Whatever a conversion is about to do with the result: what the code itself makes is not for PyTorch.
  Hosting host(*this, false);
  OpenSizes open(false);
  f->parent = caller;
  f->resumable = resumable;
  struct Scope {
    Translator& tr;
    Frame *f, *before;
    Variable* handled;
    ~Scope() {
      tr.frame_ = before;
      f->handled = tr.handled;
      f->around = nullptr;
      tr.handled = handled;
      tr.dirty_ = true;
    }
  } scope{*this, f, frame_, handled};
  frame_ = f;
  if (f->is_generator) {
    f->around = being_handled();
    handled = f->handled;
  }
  return run_frame(f);
}

bool Translator::handle(Frame& f, PyRaise& raised) {
  const Instruction& ins = f.code->instructions[static_cast<size_t>(f.ip)];
  origins_.try_emplace(raised.exception, raised.origin);
  if (ins.handler < 0) return false;
  const Handler& h = f.code->handlers[static_cast<size_t>(ins.handler)];
  f.sp = h.depth;
  if (h.push_lasti) f.push(integer(ins.offset / 2, Ground::code()));
  f.push(raised.exception);
  f.ip = h.target;
  return true;
}

Variable* Translator::load_const(PyObject* o) {
  auto [it, fresh] = consts_.try_emplace(o);
  if (fresh) {
    Variable* v = from_python(Ref::borrow(o), Ground::code());
    it = consts_.insert_or_assign(o, v).first;
  }
  return it->second;
}

Variable* Translator::load_global(Frame& f, PyObject* name) {
  if (Variable* v = globals_dict(f)->get(*this, name)) return v;
  auto* builtins = force(wrap(f.builtins, sources().constant(f.builtins, "B")))->as<DictVariable>();
  if (Variable* v = builtins->get(*this, name)) return v;
  raise(PyExc_NameError, std::string("name '") + PyUnicode_AsUTF8(name) + "' is not defined");
}

Variable* Translator::step(Frame& f, const Instruction& ins) {
  using enum Opcode;
  const Bytecode& code = *f.code;
  int next = f.ip + 1;
  auto local = [&](int i) -> Variable*& { return f.locals[static_cast<size_t>(i)]; };
  auto cell = [&](int i) { return local(i)->as<CellVariable>(); };
  auto local_name = [&](int i) { return std::string(PyUnicode_AsUTF8(code.local_name(i))); };
  switch (ins.op) {
    case Nop:
    case Resume:
    case CopyFreeVars:
      break;
    case PopTop: f.pop(); break;
    case PushNull: f.push(nullptr); break;
    case Copy: f.push(f.top(ins.arg)); break;
    case Swap: std::swap(f.top(1), f.top(ins.arg)); break;
    case LoadConst: f.push(load_const(code.constant(ins.arg))); break;
    case LoadFast:
    case LoadFastCheck:
      if (!local(ins.arg)) raise(PyExc_UnboundLocalError, "cannot access local variable '" + local_name(ins.arg) + "' where it is not associated with a value");
      f.push(local(ins.arg));
      break;
    case LoadFastAndClear:
      f.push(local(ins.arg));
      local(ins.arg) = nullptr;
      break;
    case StoreFast: local(ins.arg) = f.pop(); break;
    case DeleteFast:
      if (!local(ins.arg)) raise(PyExc_UnboundLocalError, "cannot access local variable '" + local_name(ins.arg) + "' where it is not associated with a value");
      local(ins.arg) = nullptr;
      break;
    case MakeCell: {
      auto* c = make<CellVariable>();
      c->known = true;
      c->contents = local(ins.arg);
      local(ins.arg) = c;
      break;
    }
    case LoadClosure: f.push(local(ins.arg)); break;
    case LoadDeref: {
      Variable* v = cell(ins.arg)->get(*this);
      if (!v) {
        if (code.is_free(ins.arg))
          raise(PyExc_NameError, "cannot access free variable '" + local_name(ins.arg) + "' where it is not associated with a value in enclosing scope");
        raise(PyExc_UnboundLocalError, "cannot access local variable '" + local_name(ins.arg) + "' where it is not associated with a value");
      }
      f.push(v);
      break;
    }
    case StoreDeref: cell(ins.arg)->set(*this, f.pop()); break;
    case DeleteDeref: cell(ins.arg)->set(*this, nullptr); break;
    case LoadGlobal: {
      Variable* v = load_global(f, code.name(ins.arg));
      if (ins.flag) f.push(nullptr);
      f.push(v);
      break;
    }
    case StoreGlobal: globals_dict(f)->set(*this, code.name(ins.arg), f.pop()); break;
    case DeleteGlobal:
      if (!globals_dict(f)->remove(*this, constant(code.name(ins.arg), Ground::code())))
        raise(PyExc_NameError, std::string("name '") + PyUnicode_AsUTF8(code.name(ins.arg)) + "' is not defined");
      break;
    case ReturnValue:
    case ReturnConst: {
      Variable* v = ins.op == ReturnConst ? load_const(code.constant(ins.arg)) : f.pop();
      yielded_ = false;
      return v;
    }
    case ReturnGenerator: {
      if (!f.function) unsupported("a generator as the compiled function");
      auto* g = make<GeneratorVariable>(&f);
      f.is_generator = true;
      f.ip = next;
      yielded_ = false;
      return g;
    }
    case YieldValue: {
      if (!f.is_generator) unsupported("yield in the compiled function");
      Variable* v = f.pop();
      f.ip = next;
      yielded_ = true;
      return v;
    }
    case KwNames: f.kw_names = code.constant(ins.arg); break;
    case Call: call_instruction(f, ins.arg); break;
    case CallFunctionEx: call_ex_instruction(f, ins.arg & 1); break;
    case MakeFunction: make_function(f, ins.arg); break;
    case RaiseVarargs: raise_instruction(f, ins.arg);  break;
    case BeforeWith: before_with(f); break;
    default:
      if (step_object(f, ins)) break;
      if (step_flow(f, ins, next)) break;
      unsupported(Reason::UnsupportedBytecode, std::string(opcode_name(ins.op)));
  }
  f.ip = next;
  return nullptr;
}

bool Translator::step_flow(Frame& f, const Instruction& ins, int& next) {
  using enum Opcode;
  switch (ins.op) {
    case Jump:
    case JumpBackward: next = ins.target; return true;
    case PopJumpIfTrue:
    case PopJumpIfFalse: {
      // assert, of what only the run knows
      if (ins.op == PopJumpIfTrue && static_cast<size_t>(next) < f.code->instructions.size() && f.code->instructions[static_cast<size_t>(next)].op == LoadAssertionError) {
        const auto& all = f.code->instructions;
        const Instruction& after = all[static_cast<size_t>(next) + 1];
        Variable* message = after.op == LoadConst ? load_const(f.code->constant(after.arg)) : nullptr;
        if (may_be_unbacked() && assume(*this, f.top(), "AssertionError", message)) {
          f.pop();
          next = ins.target;
          return true;
        }
      }
      if (may_be_unbacked() && checks(f, ins, next)) {
        f.pop();
        return true;
      }
      bool t = truth(f.pop());
      if (t == (ins.op == PopJumpIfTrue)) next = ins.target;
      return true;
    }
    case PopJumpIfNone:
    case PopJumpIfNotNone: {
      bool n = is_none(force(f.pop()));
      if (n == (ins.op == PopJumpIfNone)) next = ins.target;
      return true;
    }
    case JumpIfTrueOrPop:
    case JumpIfFalseOrPop: {
      bool t = truth(f.top());
      if (t == (ins.op == JumpIfTrueOrPop)) next = ins.target;
      else f.pop();
      return true;
    }
    case GetIter: {
      Variable* it = iter(f.pop());
      f.push(it);
      return true;
    }
    case ForIter: {
      Variable* v = this->next(f.top());
      if (v) {
        f.push(v);
      } else {
        f.pop();
        next = ins.target;
      }
      return true;
    }
    case GetYieldFromIter: {
      Variable* v = force(f.pop());
      f.push(v->is(Kind::Generator) ? v : iter(v));
      return true;
    }
    case Send: next = send_instruction(f, ins, next); return true;
    case EndSend: {
      Variable* v = f.pop();
      f.pop();
      f.push(v);
      return true;
    }
    case PushExcInfo: {
      Variable* e = f.pop();
      f.push(handled ? handled : handled_at_start());
      f.push(e);
      handled = e;
      return true;
    }
    case PopExcept: {
      Variable* before = f.pop();
      bool as_at_start = before == handled_before_ || (before == none() && handled_at_start() == none());
      handled = as_at_start ? nullptr : before;
      return true;
    }
    case CheckExcMatch: {
      Variable* cls = force(f.pop());
      Ref c = to_python(cls);
      auto catchable = [](PyObject* o) { return PyExceptionClass_Check(o); };
      bool all = true;
      if (!PyTuple_Check(c.get())) all = catchable(c.get());
      else
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(c.get()); ++i) all = all && catchable(PyTuple_GET_ITEM(c.get(), i));
      if (!all) raise(PyExc_TypeError, "catching classes that do not inherit from BaseException is not allowed");
      bool match = is_instance(f.top(), c.get());
      f.push(boolean(match, Ground::pure(f.top(), cls)));
      return true;
    }
    case Reraise: {
      Variable* e = f.pop();
      uint64_t origin = origins_.try_emplace(e, ordinal_).first->second;
      throw PyRaise{e, origin};
    }
    case WithExceptStart: {
      Variable *e = force(f.top(1)), *exit = f.top(4);
      Variable* cls = global_object(reinterpret_cast<PyObject*>(e->type()), Ground::pure(e));
      Variable* r = call(exit, {cls, e, e->is(Kind::Object) ? getattr(e, "__traceback__") : none()});
      f.push(r);
      return true;
    }
    case StopIterationError: {
      // In place of an exception that leaves a generator.
      Variable* e = f.pop();
      if (is_instance(e, PyExc_StopIteration)) raise_stop_iteration_error(e);
      f.push(e);
      return true;
    }
    case CleanupThrow: {
      // [receiver, value sent, exception]: the exception that a receiver ended with.
      Variable* e = force(f.pop());
      if (!is_instance(e, PyExc_StopIteration)) throw PyRaise{e, origins_.try_emplace(e, ordinal_).first->second};
      f.pop();
      f.pop();
      f.push(none());
      f.push(getattr(e, "value"));
      return true;
    }
    case LoadAssertionError: f.push(global_object(PyExc_AssertionError, Ground::fixed())); return true;
    default: return false;
  }
}

int Translator::send_instruction(Frame& f, const Instruction& ins, int next) {
  Variable* value = f.pop();
  Variable* receiver = force(f.top());
  Variable *yielded = nullptr, *result = none();
  mutate();
  if (receiver->is(Kind::Generator)) {
    auto* g = receiver->as<GeneratorVariable>();
    yielded = g->send(*this, value);
    if (!yielded) result = g->result;
  } else if (is_none(force(value)) && receiver->is(Kind::Object)) {
    // The end of an iterator of the user's may carry a value.
    SourceId at;
    PyObject* method = lookup_on_type(receiver->type(), intern("__next__"), &at);
    if (!method) raise(PyExc_TypeError, std::string("'") + receiver->type()->tp_name + "' object is not an iterator");
    try {
      yielded = call(bind_descriptor(method, at, receiver, receiver->type(), intern("__next__")), std::vector<Variable*>{});
    } catch (PyRaise& e) {
      if (!is_instance(e.exception, PyExc_StopIteration)) throw;
      result = getattr(e.exception, "value");
    }
  } else if (is_none(force(value))) {
    yielded = this->next(receiver);
  } else {
    try {
      yielded = call_method(receiver, "send", {value});
    } catch (PyRaise& e) {
      if (!is_instance(e.exception, PyExc_StopIteration)) throw;
      result = getattr(e.exception, "value");
    }
  }
  if (yielded) {
    f.push(yielded);
    return next;
  }
  finish_send(f, ins, result);
  return f.ip;
}

void Translator::finish_send(Frame& f, const Instruction& send, Variable* result) {
#if PY_VERSION_HEX < 0x030C0000
  f.pop();  // later versions leave the receiver to EndSend
#endif
  f.push(result);
  f.ip = send.target;
}

void Translator::raise_stop_iteration_error(Variable* e) {
  auto* replaced = make<ObjectVariable>(reinterpret_cast<PyTypeObject*>(PyExc_RuntimeError));
  replaced->base = tuple({string("generator raised StopIteration", Ground::fixed())});
  replaced->set_field(*this, intern("__cause__"), e);
  replaced->set_field(*this, intern("__context__"), e);
  replaced->set_field(*this, intern("__suppress_context__"), boolean(true, Ground::pure(e)));
  throw PyRaise{replaced, ordinal_};
}

void Translator::raise_instruction(Frame& f, int n) {
  if (n == 0) {
    Variable* current = being_handled();
    if (!current && !handled) current = force(handled_at_start());
    if (current && is_none(current)) current = nullptr;
    if (!current) raise(PyExc_RuntimeError, "No active exception to reraise");
    if (current->is(Kind::Object)) current->as<ObjectVariable>()->bare = false;
    throw PyRaise{current, origins_.try_emplace(current, ordinal_).first->second};
  }
  Variable* cause = n == 2 ? force(f.pop()) : nullptr;
  Variable* e = force(f.pop());
  if (PyObject* cls = e->as_constant(); cls && PyExceptionClass_Check(cls)) e = force(call(e, std::vector<Variable*>{}));
  if (!PyType_IsSubtype(e->type(), reinterpret_cast<PyTypeObject*>(PyExc_BaseException))) raise(PyExc_TypeError, "exceptions must derive from BaseException");
  auto is_exception = [](Variable* v) { return PyType_IsSubtype(v->type(), reinterpret_cast<PyTypeObject*>(PyExc_BaseException)); };
  if (cause && e->is(Kind::Object)) {
    if (PyObject* cls = cause->as_constant(); cls && PyExceptionClass_Check(cls)) cause = force(call(cause, std::vector<Variable*>{}));
    if (!is_none(cause) && !is_exception(cause)) raise(PyExc_TypeError, "exception causes must derive from BaseException");
    e->as<ObjectVariable>()->set_field(*this, intern("__cause__"), cause);
    e->as<ObjectVariable>()->set_field(*this, intern("__suppress_context__"), boolean(true, Ground::fixed()));
  }
  // It would be left with another traceback.
  if (e->source.valid()) unsupported(Reason::RaisedException, "an exception that was there before is raised");
  chain_context(e, being_handled());
  if (e->is(Kind::Object)) e->as<ObjectVariable>()->bare = false;
  throw PyRaise{e, origins_.try_emplace(e, ordinal_).first->second};
}

}  // namespace braze::capture
