// Frames that were not captured whole: segments, native steps between them, and CPython's interpreter for the rest.
#include <unordered_map>

#include "base/check.h"
#include "capture/code/kept_ends.h"
#include "capture/cpython/any_arguments.h"
#include "capture/frames/native_step.h"
#include "capture/frames/region.h"
#include "capture/frames/report.h"
#include "capture/frames/stance.h"

namespace braze::capture {

namespace {

// After so many segments in a row without tensor work the interpreter is quicker.
constexpr int kMostIdle = 200;

// The frame that is about to be entered, and what it is to be filled with.
struct Awaited {
  Region* region;
  PyCodeObject* code;
  const FrameImage* images;
  size_t num_images;
  Registers* regs;
  bool taken = false;
};
thread_local Awaited* t_awaited = nullptr;

bool take(PyThreadState* ts, cpython::Frame* frame, PyObject** result) {
  Awaited* a = t_awaited;
  if (!a || cpython::code(frame) != a->code) return false;
  t_awaited = nullptr;
  a->taken = true;
  cpython::remove_hook();
  *result = a->region->run_frame(ts, frame, a->images, a->num_images, a->regs);
  return true;
}

// Where the interpreter has to start so that instruction `i` is carried out: names of keywords belong to the call.
int entry_offset(const Bytecode& code, int i) {
  BRAZE_CHECK(!code.instructions[i].second, "an entry within an instruction of the interpreter's");
  if (code.instructions[i].op == Opcode::Call)
    for (int k = i - 1; k >= 0 && k >= i - 2; --k) {
      if (code.instructions[k].op == Opcode::KwNames) i = k;
      if (code.instructions[k].op != Opcode::Nop) break;
    }
  return i ? code.instructions[i - 1].next_offset : 0;
}

// What is popped may run code as it ends.
void unwind(cpython::Frame* frame, int depth) {
  while (cpython::depth(frame) > depth) Ref gone = cpython::pop(frame);
}

PyObject* leave(PyThreadState* ts, cpython::Frame* frame, const Bytecode& code, PyObject* owned) {
  // The interpreter ends the frame itself, by a return instruction of its code.
  for (size_t i = 0; i < code.instructions.size(); ++i) {
    const Instruction& in = code.instructions[i];
    bool constant = in.op == Opcode::ReturnConst && code.constant(in.arg) == owned;
    if (in.op != Opcode::ReturnValue && !constant) continue;
    unwind(frame, 0);
    Ref value = Ref::steal(owned);
    if (!constant) cpython::push(frame, std::move(value));
    cpython::set_next(frame, entry_offset(code, static_cast<int>(i)));
    return cpython::go_on(ts, frame, false);
  }
  Py_DECREF(owned);
  PyErr_SetString(PyExc_SystemError, "braze: code without a return instruction");
  return cpython::go_on(ts, frame, true);
}

void fill(cpython::Frame* frame, const Bytecode& code, const FrameImage& image, PyObject** regs) {
  auto value = [&](Reg r) { return r == kNoReg ? Ref() : Ref::borrow(regs[r]); };
  int locals = code.num_locals_plus, before = cpython::num_slots(frame);
  std::vector<Ref> old;  // ends last: it may run code
  for (int i = 0; i < before; ++i) old.push_back(cpython::take_slot(frame, i));
  for (int i = 0; i < locals; ++i) {
    auto at = static_cast<size_t>(i);
    Reg local = at < image.locals.size() ? image.locals[at] : kNoReg;
    cpython::put_slot(frame, i, local == kAsBefore ? std::move(old[at]) : value(local));
  }
  cpython::set_depth(frame, 0);
  for (Reg r : image.stack) cpython::push(frame, value(r));
}

void set_handled(PyThreadState* ts, PyObject* exception) {
  PyObject* before = ts->exc_info->exc_value;
  ts->exc_info->exc_value = Py_NewRef(exception);
  Py_XDECREF(before);
}

// Delivers the exception that is set to the frame's own handler, as the interpreter would. -1: there is none, or a
// tracer wants to see it; else the instruction to go on at.
int land(PyThreadState* ts, cpython::Frame* frame, const Bytecode& code, int instruction) {
  int index = code.instructions[instruction].handler;
  if (index < 0 || ts->c_tracefunc || ts->c_profilefunc) return -1;
  const Handler& h = code.handlers[index];
  cpython::set_position(frame, code.instructions[instruction].offset);
  cpython::link(ts, frame);
  PyFrameObject* object = PyThreadState_GetFrame(ts);
  if (object) PyTraceBack_Here(object);
  Py_XDECREF(object);
  cpython::unlink(ts, frame);
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  if (trace) PyException_SetTraceback(value, trace);
  Py_XDECREF(type);
  Py_XDECREF(trace);
  unwind(frame, h.depth);
  if (h.push_lasti) cpython::push(frame, cpython::instruction_mark(code.instructions[instruction].offset / 2));
  cpython::push(frame, Ref::steal(value));
  return h.target;
}

}  // namespace

PyObject* Region::call_frame(PyFunctionObject* function, PyObject* const* args, size_t nargsf, PyObject* kwnames,
                             const FrameImage* images, size_t num_images, Registers* regs) {
  Awaited awaited{this, reinterpret_cast<PyCodeObject*>(function->func_code), images, num_images, regs};
  Awaited* before = t_awaited;
  t_awaited = &awaited;
  cpython::install_hook(take);
  PyObject* r = PyObject_Vectorcall(reinterpret_cast<PyObject*>(function), args, nargsf, kwnames);
  if (!awaited.taken) cpython::remove_hook();
  t_awaited = before;
  return r;
}

namespace {

// Enters an inlined function for real. Its arguments do not matter: the hook fills the frame.
PyObject* call_image(Region& region, const FrameImage* images, size_t num_images, Registers* regs) {
  auto* function = reinterpret_cast<PyFunctionObject*>(regs->get()[images[0].function]);
  BRAZE_CHECK(PyFunction_Check(function), "a frame image without a function");
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  Ref hold = Ref::borrow(reinterpret_cast<PyObject*>(function));  // the registers are emptied meanwhile
  cpython::AnyArguments args(code);
  return region.call_frame(function, args.values.data(), args.positional, args.names.get(), images, num_images, regs);
}

// A frame that waits for what it calls, which counts for the recursion limit: the interpreter counts those that it runs
// itself.
class Waiting {
 public:
  Waiting() : too_deep_(!cpython::enter_call()) {}
  ~Waiting() {
    if (!too_deep_) cpython::leave_call();
  }
  Waiting(const Waiting&) = delete;
  bool too_deep() const { return too_deep_; }  // RecursionError is set

 private:
  bool too_deep_;
};

class FrameRunner {
 public:
  FrameRunner(Region& region, PyThreadState* ts, cpython::Frame* frame)
      : region_(region), ts_(ts), frame_(frame), code_(decode(cpython::code(frame))) {}

  PyObject* run(const FrameImage* images, size_t num_images, Registers* regs) {
    if (num_images && !advance(images, num_images, regs)) return result_;
    for (;;) {
      if (PyErr_CheckSignals() < 0) return raise_at(ip_);
      GilPtr<Entry> entry;
      GuardValues values;
      if (idle_ < kMostIdle) {
        entry = find(values);
        if (!entry && PyErr_Occurred()) return raise_at(ip_);
      }
      if (!entry) {
        cpython::set_next(frame_, entry_offset(code_, ip_));
        return cpython::go_on(ts_, frame_, false);
      }
      if (!run_entry(*entry, values)) return result_;
    }
  }

 private:
  GilPtr<Entry> find(GuardValues& values) {
    std::vector<PyObject*> slots;
    for (int i = 0, n = cpython::num_slots(frame_); i < n; ++i) slots.push_back(cpython::slot(frame_, i));
    if (ip_ == 0) {
      // Free variables are not copied into the frame yet.
      auto* function = reinterpret_cast<PyFunctionObject*>(cpython::function(frame_));
      for (int i = 0; i < code_.num_frees; ++i)
        slots[code_.num_locals_plus - code_.num_frees + i] = PyTuple_GET_ITEM(function->func_closure, i);
    }
    FrameView view{&code_,
                   cpython::globals(frame_),
                   cpython::builtins(frame_),
                   cpython::function(frame_),
                   slots.data(),
                   cpython::depth(frame_),
                   ip_,
                   ++rounds_[ip_]};
    // Code that capture runs (reprs, torch's functions) must find this frame below it.
    cpython::set_position(frame_, code_.instructions[ip_].offset);
    cpython::link(ts_, frame_);
    GilPtr<Entry> entry = region_.find(region_.place(view), view, values);
    cpython::unlink(ts_, frame_);
    return entry;
  }

  // True: go on at ip_; false: result_ is the frame's.
  bool run_entry(Entry& entry, GuardValues& values) {
    idle_ = entry.has_graph ? 0 : idle_ + 1;
    Registers regs(static_cast<size_t>(entry.recipe.num_registers()));
    cpython::link(ts_, frame_);
    Ran ran = execute(entry, values, regs.get());
    cpython::unlink(ts_, frame_);
    if (ran == Ran::Raised) {
      result_ = raise_at(ip_);
      return false;
    }
    if (ran == Ran::Uncompiled) {
      regs.clear();
      cpython::set_next(frame_, entry_offset(code_, ip_));
      result_ = cpython::go_on(ts_, frame_, false);
      return false;
    }
    if (entry.stop) {
      const std::vector<FrameImage>& images = entry.recipe.frames;
      BRAZE_CHECK(!images.empty(), "a break without frames");
      // Asked here, not in capture: what came before the break has run, and may be what says so.
      if (entry.stop->reason != Reason::RaisedException && breaks_are_errors())
        return refuse_break(images[0], *entry.stop, &regs);
      return advance(images.data(), images.size(), &regs);
    }
    if (entry.recipe.handled != kNoReg) set_handled(ts_, regs.get()[entry.recipe.handled]);
    // A traceback may keep the frame, and be kept by what the code has let go of: the exception of an `except ... as e`
    // that ended.
    for (int i : entry.recipe.released) Ref gone = cpython::take_slot(frame_, i);
    result_ = leave(ts_, frame_, code_, Py_NewRef(regs.get()[entry.recipe.result]));
    return false;
  }

  // Carries the frame from an image to the next instruction. True: go on at ip_; false: result_ is the frame's.
  bool advance(const FrameImage* at, size_t n, Registers* regs) {
    fill(frame_, code_, at[0], regs->get());
    int instruction = at[0].instruction;
    if (n > 1) return call_inner(instruction, at + 1, n - 1, regs);
    Ref kw = Ref::borrow(at[0].kw_names == kNoReg ? nullptr : regs->get()[at[0].kw_names]);
    if (at[0].handled != kNoReg) set_handled(ts_, regs->get()[at[0].handled]);
    regs->clear();  // what the frame no longer holds is to die now, not after the call
    StepResult s{StepResult::Raised};
    if (Waiting waiting; !waiting.too_deep()) s = native_step(ts_, frame_, code_, instruction, kw.get());
    switch (s.kind) {
      case StepResult::Next:
        ip_ = s.next;
        if (code_.instructions[instruction].second) {  // the interpreter cannot carry it out, but go on behind it
          cpython::set_next(frame_, entry_offset(code_, ip_));
          result_ = cpython::go_on(ts_, frame_, false);
          return false;
        }
        return !at[0].raises || !region_.options().fullgraph || did_not_raise(instruction);
      case StepResult::Raised: return raised(instruction);
      case StepResult::NotTaken: break;
    }
    cpython::set_next(frame_, entry_offset(code_, instruction));
    result_ = cpython::go_on(ts_, frame_, false);
    return false;
  }

  // The call in progress at `instruction`: of a function that was inlined, up to where capture stopped in it.
  bool call_inner(int instruction, const FrameImage* images, size_t n, Registers* regs) {
    cpython::set_position(frame_, code_.instructions[instruction].offset);
    cpython::link(ts_, frame_);
    PyObject* v = nullptr;
    if (Waiting waiting; !waiting.too_deep()) v = call_image(region_, images, n, regs);
    cpython::unlink(ts_, frame_);
    if (!v) return raised(instruction);
    cpython::push(frame_, Ref::steal(v));
    ip_ = instruction + 1;
    return true;
  }

  // A break that is an error: of the program's at that instruction.
  bool refuse_break(const FrameImage& at, const BreakInfo& stop, Registers* regs) {
    fill(frame_, code_, at, regs->get());
    if (at.handled != kNoReg) set_handled(ts_, regs->get()[at.handled]);
    regs->clear();
    cpython::set_position(frame_, code_.instructions[at.instruction].offset);
    refuse(stop);
    return raised(at.instruction);
  }

  // With fullgraph only what raises an exception may run uncompiled. False, with the error of the program's.
  bool did_not_raise(int instruction) {
    refuse({Reason::UnsupportedFeature,
            "an operation that raises an exception on fake tensors, and not on real ones",
            {code_.code, code_.instructions[instruction].line},
            {}});
    result_ = raise_at(instruction);
    return false;
  }

  bool raised(int instruction) {
    // The interpreter lets go of an exception where the code does, a segment at its end.
    if (!raised_keeps_end() && (ip_ = land(ts_, frame_, code_, instruction)) >= 0) return true;
    result_ = raise_at(instruction);
    return false;
  }

  // The interpreter goes on with the exception that is set, which has come from the instruction.
  PyObject* raise_at(int instruction) {
    int handler = land(ts_, frame_, code_, instruction);
    if (handler < 0) {
      cpython::set_position(frame_, code_.instructions[instruction].offset);
      return cpython::go_on(ts_, frame_, true);
    }
    cpython::set_next(frame_, entry_offset(code_, handler));
    return cpython::go_on(ts_, frame_, false);
  }

  Region& region_;
  PyThreadState* ts_;
  cpython::Frame* frame_;
  const Bytecode& code_;
  int ip_ = 0, idle_ = 0;
  std::unordered_map<int, size_t> rounds_;  // segments so far, by where they began
  PyObject* result_ = nullptr;
};

}  // namespace

PyObject* Region::run_frame(PyThreadState* ts, cpython::Frame* frame, const FrameImage* images, size_t num_images,
                            Registers* regs) {
  return FrameRunner(*this, ts, frame).run(images, num_images, regs);
}

}  // namespace braze::capture
