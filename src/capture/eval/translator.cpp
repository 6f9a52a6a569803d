// Frames, one instruction at a time (instructions/), and the life of a capture.
#include "capture/eval/translator.h"

#include <algorithm>

#include "capture/code/kept_ends.h"
#include "capture/code/liveness.h"
#include "capture/cpython/frame.h"
#include "capture/eval/instructions/instructions.h"
#include "capture/eval/library_objects.h"
#include "capture/eval/open_sizes.h"
#include "capture/eval/segment_end.h"
#include "capture/vars/all.h"
#include "trace/pytorch/names.h"

namespace braze::capture {

Translator::Translator(const FrameView& view, const Options& options, const Decisions& decisions)
    : Values(*this),
      Protocols(*this),
      Raising(*this),
      attributes(*this),
      real(*this),
      floats(*this),
      branches(*this),
      host(*this),
      torch_functions(*this),
      effects(*this),
      view_(view),
      options_(options),
      decisions_(decisions) {
  segment_.sources = std::make_shared<Sources>(view.bytecode->code);
  segment_.tracer = trace::Tracer::create(options);
  if (view.unbacked) segment_.tracer->allow_numbers(true);
  if (view.fixed_sizes && !view.unbacked) segment_.tracer->refuse_open_results();
  segment_.global_state = trace::global_state_of_capture();
  size_lines_.push_back({});
  tracer().set_where([this] {
    size_lines_.push_back(line());
    return static_cast<uint32_t>(size_lines_.size() - 1);
  });
}

Translator::~Translator() { leave(); }

// PyTorch and the interpreter as they were before.
void Translator::leave() {
  effects.undo_states();
  torch_functions.leave();
  if (std::exchange(entered_, false) && segment_.tracer) segment_.tracer->leave();
}

Frame* Translator::new_frame() {
  frames_.push_back(std::make_unique<Frame>());
  return frames_.back().get();
}

Segment Translator::run() {
  start_frame();
  torch_functions.adopt_modes();
  tracer().enter();
  entered_ = true;
  SegmentEnd end(*this);
  try {
    end.at_return(run_frame(frame_));
  } catch (const Finished&) {
  } catch (const PyRaise& e) {
    if (asked_compiling_ && decisions_.compiling) throw HideCompiling();
    throw Restart{std::max<uint64_t>(e.origin, 1), {Reason::RaisedException, describe_exception(e.exception)}};
  }
  segment_.without_torch_functions = torch_functions.has_modes() ? 2 : torch_functions.has_subclasses() ? 1 : 0;
  leave();
  PyErr_Clear();
  end.complete();
  return std::move(segment_);
}

void Translator::start_frame() {
  Frame* f = new_frame();
  frame_ = f;
  const Bytecode& code = *view_.bytecode;
  f->code = &code;
  f->globals = view_.globals;
  f->builtins = view_.builtins;
  f->globals_source = sources().constant(view_.globals, "G");
  f->locals.resize(static_cast<size_t>(code.num_locals_plus));
  f->stack.resize(static_cast<size_t>(code.max_stack + std::max(0, view_.depth)) + 2);
  f->ip = view_.start;
  std::vector<bool> live;
  if (view_.start > 0) live = live_locals(code, view_.start);
  for (int i = 0; i < code.num_locals_plus; ++i) {
    PyObject* o = view_.slots[i];
    SourceId s = sources().local(i);
    auto& slot = f->locals[static_cast<size_t>(i)];
    if (!o) {
      if (view_.start > 0 && live[static_cast<size_t>(i)]) guards().absent(s, line());
      continue;
    }
    // What is only handed on is not looked at, but has to be there.
    if (view_.start > 0 && live[static_cast<size_t>(i)]) guards().exists(s, line());
    bool cell = code.is_free(i) || (view_.start > 0 && code.is_cell(i) && PyCell_Check(o));
    slot = cell ? force(wrap(o, s)) : wrap(o, s);
  }
  for (int i = 0; i < view_.depth; ++i) {
    PyObject* o = view_.slots[code.num_locals_plus + i];
    f->push(o ? wrap(o, sources().stack(i)) : nullptr);
    // An iterator under a loop that is left is popped without a look at it.
    if (o && Py_TYPE(o)->tp_iternext) guards().type_is(sources().stack(i), Py_TYPE(o), line());
  }
  if (view_.start == 0) return;  // arguments: the caller has them, too
  for (int i = 0, n = code.num_locals_plus + view_.depth; i < n; ++i) {
    // One that another iterator goes through ends with that.
    PyObject* o = view_.slots[i];
    if (!o || !(PyGen_CheckExact(o) || (Py_TYPE(o)->tp_iternext && may_keep_end(o)))) continue;
    bool local = i < code.num_locals_plus;
    if (local) guards().type_is(sources().local(i), Py_TYPE(o), line());
    generators_.push_back(local ? f->locals[static_cast<size_t>(i)]
                                : f->stack[static_cast<size_t>(i - code.num_locals_plus)]);
  }
}

// A generator of the interpreter's that the frame began with ends when the frame lets go of it, and code of the
// program's may run then: the instruction is left to the interpreter. `generators`: that the frame began with, and
// others.
static void refuse_dropped(const std::vector<Variable*>& generators, const Frame& f) {
  auto inner = [](Variable* v) {
    return v && v->kind == Kind::Lazy && v->as<LazyVariable>()->forced ? v->as<LazyVariable>()->forced : v;
  };
  for (Variable* g : generators) {
    if (g->kind == Kind::Generator) continue;
    Variable* met = inner(g);
    if (met->kind == Kind::Generator && met->as<GeneratorVariable>()->finished) continue;
    auto is_it = [&](Variable* v) { return inner(v) == met; };
    if (std::any_of(f.locals.begin(), f.locals.end(), is_it) ||
        std::any_of(f.stack.begin(), f.stack.begin() + f.sp, is_it))
      continue;
    throw Restart{f.ordinal, {Reason::UnsupportedFeature, "a generator that is dropped before its end"}};
  }
}

// How often the tensors of the capture were written.
static int64_t writes(Translator& tr) {
  int64_t n = 0;
  for (const auto& v : tr.all())
    if (v->is(Kind::Tensor)) n += v->as<TensorVariable>()->times_written();
  return n;
}

// The instruction raises an exception, and is to do so natively: evaluated once more, its guards say for which values.
// Without them, the place where a program once got a wrong size would end the graph in each later call.
void Translator::look_at_raising(Frame& f, const Instruction& ins, const Stop& stop) {
  bool raised = false;
  changed_ = false;
  int64_t before = writes(*this);
  size_t modified = effects.modifications().size();
  try {
    step(f, ins);
  } catch (const PyRaise&) {
    raised = true;
  } catch (const Unsupported&) {
    raised = true;
  } catch (const Restart&) {
  }
  PyErr_Clear();
  frame_ = &f;
  if (ordinal_ == f.ordinal && !changed_ && effects.modifications().size() == modified && writes(*this) == before)
    dirty_ = false;
  if (!raised || dirty_) throw Restart{f.ordinal, {stop.reason, stop.detail, true}};
}

constexpr uint64_t kMostQuietSteps = 300'000;
constexpr uint64_t kApart = uint64_t{1} << 40;  // ordinals of trials: where no attempt stops

// Before an instruction: those of autograd's nodes that are new since the last one are that one's.
void Translator::note_nodes() {
  const uint64_t next = trace::next_node();
  if (nodes_.empty() || nodes_.back().first != next) nodes_.emplace_back(next, ordinal_);
}

uint64_t Translator::that_made(uint64_t node) const {
  auto after = std::upper_bound(nodes_.begin(), nodes_.end(), node,
                                [](uint64_t n, const auto& noted) { return n < noted.first; });
  if (after == nodes_.begin() || after == nodes_.end()) return 0;
  const uint64_t ordinal = after->second - 1;
  return ordinal < kApart ? ordinal : 0;
}

Variable* Translator::run_frame(Frame* frame) {
  Frame& f = *frame;
  if (f.pending) {
    Variable* e = f.pending;
    f.pending = nullptr;
    f.ip -= 1;  // at the yield
    chain_context(force(e), f.handled);
    PyRaise raised{e, raised_at(e, ordinal_)};
    if (!handle(f, raised)) throw raised;
  }
  for (;;) {
    if (!f.parent && !generators_.empty()) refuse_dropped(generators_, f);
    const Instruction& ins = f.code->instructions[static_cast<size_t>(f.ip)];
    f.ordinal = ++ordinal_;
    note_nodes();
    int sp = f.sp;
    PyObject* kw = f.kw_names;
    size_t known = guards().size(), made = all().size();
    dirty_ = false;
    try {
      if (const auto& stops = decisions_.stops; !stops.empty())
        if (auto stop = stops.find(ordinal_); stop != stops.end()) {
          // A raise statement looks at nothing but the exception, which the interpreter is to raise for the first time.
          bool statement = ins.op == Opcode::RaiseVarargs || ins.op == Opcode::Reraise;
          if (stop->second.reason == Reason::RaisedException && !stop->second.unseen && !statement)
            look_at_raising(f, ins, stop->second);
          throw Unsupported(stop->second.reason, stop->second.detail);
        }
      if (ordinal_ > last_ordinal_) unsupported("a capture of too many steps");
      // The interpreter is faster at what makes no graph.
      if (!may_be_unbacked() && segment_.num_calls == 0 && ordinal_ > kMostQuietSteps && ordinal_ < kApart)
        unsupported("a long run of code without an operation on tensors");
      if (Variable* result = step(f, ins)) return result;
    } catch (const Unsupported& e) {
      f.sp = sp;
      f.kw_names = kw;
      frame_ = frame;
      // To stop here is right whatever the instruction saw. An exception is raised as long as it sees the same.
      if (e.reason() != Reason::RaisedException) {
        guards().truncate(known);
        guards_truncated();
      }
      forget_from(made);
      stop_here({e.reason(), e.detail()});
    } catch (PyRaise& raised) {
      frame_ = frame;
      f.kw_names = nullptr;
      if (!handle(f, raised)) throw;
    }
  }
}

Translator::Trial::Trial(Translator& tr)
    : tr_(tr), ordinal_(tr.ordinal_), last_ordinal_(tr.last_ordinal_), known_(tr.all().size()) {
  constexpr uint64_t kMostSteps = 100'000;
  tr_.ordinal_ += kApart;
  tr_.last_ordinal_ = tr_.ordinal_ + kMostSteps;
}

Translator::Trial::~Trial() {
  tr_.ordinal_ = ordinal_;
  tr_.last_ordinal_ = last_ordinal_;
  // What the capture meets again (objects of before, constants) is as if the current instruction had made it.
  for (size_t i = known_; i < tr_.all().size(); ++i) tr_.all()[i]->born = ordinal_;
}

Variable* Translator::run_in(Frame* f, Frame* caller, bool resumable) {
  // Whatever a conversion is about to do with the result: what the code itself makes is not for PyTorch.
  HostCalls::Hosting evaluating(host, false);
  OpenSizes open(false);
  f->parent = caller;
  f->resumable = resumable;
  struct Scope {
    Translator& tr;
    Frame *f, *before;
    Variable* handled;
    bool resumed;  // a generator: the call that makes it handles what its caller does
    ~Scope() {
      tr.frame_ = before;
      if (resumed) f->handled = tr.handled;
      f->around = nullptr;
      tr.handled = handled;
      tr.dirty_ = true;
    }
  } scope{*this, f, frame_, handled, f->is_generator};
  frame_ = f;
  if (scope.resumed) {
    f->around = being_handled();
    handled = f->handled;
  }
  return run_frame(f);
}

bool Translator::handle(Frame& f, PyRaise& raised) {
  const Instruction& ins = f.code->instructions[static_cast<size_t>(f.ip)];
  raised_at(raised.exception, raised.origin);
  if (ins.handler < 0) return false;
  const Handler& h = f.code->handlers[static_cast<size_t>(ins.handler)];
  f.sp = h.depth;
  if (h.push_lasti) f.push(constant(cpython::instruction_mark(ins.offset / 2), Ground::code()));
  f.push(raised.exception);
  f.ip = h.target;
  return true;
}

Variable* Translator::step(Frame& f, const Instruction& ins) {
  static constexpr void (*kInstructions[])(Execution&) = {
#define BRAZE_OPCODE(name) Instructions::name,
#include "capture/cpython/opcodes.def"
#include "trace/global_state.h"
#undef BRAZE_OPCODE
  };
  Execution x{*this, f, ins, f.ip + 1};
  kInstructions[static_cast<size_t>(ins.op)](x);
  if (!x.result) f.ip = x.next;
  return x.result;
}

void Translator::stop_here(const Stop& stop) {
  PyErr_Clear();
  Frame* at = nullptr;
  for (Frame* f = frame_; f->parent; f = f->parent)
    if (!f->resumable) at = f->parent;
  if (at) throw Restart{at->ordinal, stop};
  if (dirty_) throw Restart{frame_->ordinal, stop};
  if (handled) {
    // An exception is being handled: the interpreter is to raise it itself, so that it handles it, too.
    uint64_t raised = origin(force(handled));
    if (raised > 0 && raised < frame_->ordinal) throw Restart{raised, stop};
  }
  BreakInfo info{stop.reason, stop.detail, line(), {}};
  for (Frame* f = frame_->parent; f; f = f->parent) info.stack.insert(info.stack.begin(), f->line());
  segment_.stop = info;
  SegmentEnd(*this).before_instruction(info);
  throw Finished{};
}

void Translator::finish_send(Frame& f, const Instruction& send, Variable* result) {
#if PY_VERSION_HEX < 0x030C0000
  f.pop();  // later versions leave the receiver to EndSend
#endif
  f.push(result);
  f.ip = send.target;
}

DictVariable* Translator::globals_dict(const Frame& f) {
  // Code that was compiled by hand may have mappings of its own.
  if (!PyDict_CheckExact(f.globals) || !PyDict_CheckExact(f.builtins))
    unsupported("a function whose globals are of a class of their own");
  return force(wrap(f.globals, f.globals_source))->as<DictVariable>();
}

Variable* Translator::load_global(Frame& f, PyObject* name) {
  if (Variable* v = globals_dict(f)->get(*this, name)) return v;
  auto* builtins = force(wrap(f.builtins, sources().constant(f.builtins, "B")))->as<DictVariable>();
  if (Variable* v = builtins->get(*this, name)) return v;
  raise(PyExc_NameError, std::string("name '") + PyUnicode_AsUTF8(name) + "' is not defined");
}

UserLine Translator::line() const {
  for (Frame* f = frame_; f; f = f->parent)
    if (f->code && f->ip < static_cast<int>(f->code->instructions.size())) return f->line();
  return {};
}

int64_t Translator::recipe_integer(PyObject* sym) {
  sym::Expr e;
  if (!tracer().size_expression(sym, &e))
    throw Unsupported(Reason::UnsupportedFeature, "a symbolic number of another compiler");
  segment_.sizes.values.push_back(e);
  return static_cast<int64_t>(segment_.num_integers++);
}

}  // namespace braze::capture
