// Frames, one instruction at a time (instructions/), and what several instructions share.
#include <algorithm>
#include <opcode.h>

#include "capture/builtins/builtins.h"
#include "capture/eval/instructions/instructions.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/open_sizes.h"
#include "capture/eval/translator.h"
#include "capture/vars/all.h"
#include "capture/vars/tensor_number.h"

namespace braze::capture {
namespace {

// A generator of the interpreter's that the frame began with ends when the frame lets go of it, and code of the program's may run then:
// the instruction is left to the interpreter. `generators`: that the frame began with, and others.
void refuse_dropped(const std::vector<Variable*>& generators, const Frame& f) {
  auto inner = [](Variable* v) { return v && v->kind == Kind::Lazy && v->as<LazyVariable>()->forced ? v->as<LazyVariable>()->forced : v; };
  for (Variable* g : generators) {
    if (g->kind == Kind::Generator) continue;
    auto is_it = [&](Variable* v) { return inner(v) == inner(g); };
    if (std::any_of(f.locals.begin(), f.locals.end(), is_it) || std::any_of(f.stack.begin(), f.stack.begin() + f.sp, is_it)) continue;
    throw Restart{f.ordinal, {Reason::UnsupportedFeature, "a generator that is dropped before its end"}};
  }
}

}  // namespace

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
    if (!f.parent && !generators_.empty()) refuse_dropped(generators_, f);
    const Instruction& ins = f.code->instructions[static_cast<size_t>(f.ip)];
    f.ordinal = ++ordinal_;
    int sp = f.sp;
    PyObject* kw = f.kw_names;
    size_t known = guards().size(), made = arena_.size();
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
      forgotten_ = made;
      identities_.clear();
      for (const Guard& g : guards().items())
        if (g.kind == GuardKind::Identity) identities_.emplace(g.source.index, true);
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
  static constexpr void (*kInstructions[])(Execution&) = {
#define BRAZE_OPCODE(name) Instructions::name,
#include "capture/cpython/opcodes.def"
#undef BRAZE_OPCODE
  };
  Execution x{*this, f, ins, f.ip + 1};
  kInstructions[static_cast<size_t>(ins.op)](x);
  if (!x.result) f.ip = x.next;
  return x.result;
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
