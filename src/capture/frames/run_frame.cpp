// Frames that were not captured whole: segments, native steps between them, and CPython's interpreter for the rest.
#include "base/check.h"
#include "capture/frames/entry.h"
#include "capture/frames/log.h"
#include "capture/eval/markers.h"
#include "capture/frames/native_step.h"

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
  if (code.instructions[i].op == Opcode::Call)
    for (int k = i - 1; k >= 0 && k >= i - 2; --k) {
      if (code.instructions[k].op == Opcode::KwNames) i = k;
      if (code.instructions[k].op != Opcode::Nop) break;
    }
  return i ? code.instructions[i - 1].next_offset : 0;
}

PyObject* leave(PyThreadState* ts, cpython::Frame* frame, const Bytecode& code, PyObject* owned) {
  // The interpreter ends the frame itself, by a return instruction of its code.
  for (size_t i = 0; i < code.instructions.size(); ++i) {
    const Instruction& in = code.instructions[i];
    bool constant = in.op == Opcode::ReturnConst && code.constant(in.arg) == owned;
    if (in.op != Opcode::ReturnValue && !constant) continue;
    PyObject** base = cpython::slots(frame) + code.num_locals_plus;
    while (cpython::depth(frame) > 0) {
      int d = cpython::depth(frame) - 1;
      cpython::set_depth(frame, d);
      Py_XDECREF(base[d]);
    }
    if (constant) {
      Py_DECREF(owned);
    } else {
      base[0] = owned;
      cpython::set_depth(frame, 1);
    }
    cpython::set_next(frame, entry_offset(code, static_cast<int>(i)));
    return cpython::go_on(ts, frame, false);
  }
  Py_DECREF(owned);
  PyErr_SetString(PyExc_SystemError, "braze: code without a return instruction");
  return cpython::go_on(ts, frame, true);
}

void fill(cpython::Frame* frame, const Bytecode& code, const FrameImage& image, PyObject** regs) {
  auto value = [&](Reg r) { return r == kNoReg ? nullptr : Py_XNewRef(regs[r]); };
  PyObject** slots = cpython::slots(frame);
  size_t locals = static_cast<size_t>(code.num_locals_plus);
  size_t before = locals + static_cast<size_t>(cpython::depth(frame));
  std::vector<PyObject*> old(slots, slots + before);
  for (size_t i = 0; i < locals; ++i) slots[i] = i < image.locals.size() ? value(image.locals[i]) : nullptr;
  for (size_t i = 0; i < image.stack.size(); ++i) slots[locals + i] = value(image.stack[i]);
  cpython::set_depth(frame, static_cast<int>(image.stack.size()));
  for (PyObject* o : old) Py_XDECREF(o);  // last: it may run code
}

void set_handled(PyThreadState* ts, PyObject* exception) {
  PyObject* before = ts->exc_info->exc_value;
  ts->exc_info->exc_value = Py_NewRef(exception);
  Py_XDECREF(before);
}

// Delivers the exception that is set to the frame's own handler, as the interpreter would. -1: there is none, or a tracer
// wants to see it; else the instruction to go on at.
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
  PyObject** base = cpython::slots(frame) + code.num_locals_plus;
  while (cpython::depth(frame) > h.depth) {
    int d = cpython::depth(frame) - 1;
    cpython::set_depth(frame, d);
    Py_XDECREF(base[d]);
  }
  int d = cpython::depth(frame);
  if (h.push_lasti) base[d++] = PyLong_FromLong(code.instructions[instruction].offset / 2);
  base[d++] = value;
  cpython::set_depth(frame, d);
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

// Enters an inlined function for real. Its arguments do not matter: the hook fills the frame.
PyObject* Region::call_image(PyThreadState* ts, const FrameImage* images, size_t num_images, Registers* regs) {
  auto* function = reinterpret_cast<PyFunctionObject*>(regs->get()[images[0].function]);
  BRAZE_CHECK(PyFunction_Check(function), "a frame image without a function");
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  size_t npos = static_cast<size_t>(code->co_argcount), nkw = static_cast<size_t>(code->co_kwonlyargcount);
  Ref hold = Ref::borrow(reinterpret_cast<PyObject*>(function));  // the registers are emptied meanwhile
  std::vector<PyObject*> args(npos + nkw + 1, Py_None);
  Ref names;
  if (nkw) {
    names = Ref::steal(PyTuple_New(static_cast<Py_ssize_t>(nkw)));
    for (size_t i = 0; i < nkw; ++i) PyTuple_SET_ITEM(names.get(), i, Py_NewRef(PyTuple_GET_ITEM(code->co_localsplusnames, npos + i)));
  }
  return call_frame(function, args.data(), npos, names.get(), images, num_images, regs);
}

PyObject* Region::run_frame(PyThreadState* ts, cpython::Frame* frame, const FrameImage* images, size_t num_images, Registers* regs) {
  const Bytecode& code = decode(cpython::code(frame));
  PyCodeObject* co = cpython::code(frame);
  int ip = 0, idle = 0;
  std::vector<Ref> cells;
  // Carries the frame from an image to the next instruction. True: go on at ip; false: *result is the frame's.
  auto advance = [&](const FrameImage* at, size_t n, Registers* r, PyObject** result) {
    fill(frame, code, at[0], r->get());
    int instruction = at[0].instruction;
    if (n > 1) {
      cpython::set_position(frame, code.instructions[instruction].offset);
      cpython::link(ts, frame);
      PyObject* v = call_image(ts, at + 1, n - 1, r);
      cpython::unlink(ts, frame);
      if (!v) {
        ip = land(ts, frame, code, instruction);
        if (ip >= 0) return true;
        *result = cpython::go_on(ts, frame, true);
        return false;
      }
      int d = cpython::depth(frame);
      cpython::slots(frame)[code.num_locals_plus + d] = v;
      cpython::set_depth(frame, d + 1);
      ip = instruction + 1;
      return true;
    }
    Ref kw = Ref::borrow(at[0].kw_names == kNoReg ? nullptr : r->get()[at[0].kw_names]);
    if (at[0].handled != kNoReg) set_handled(ts, r->get()[at[0].handled]);
    r->clear();  // what the frame no longer holds is to die now, not after the call
    StepResult s = native_step(ts, frame, code, instruction, kw.get());
    if (s.kind == StepResult::Next) {
      ip = s.next;
      return true;
    }
    if (s.kind == StepResult::Raised) {
      ip = land(ts, frame, code, instruction);
      if (ip >= 0) return true;
    }
    if (s.kind == StepResult::NotTaken) cpython::set_next(frame, entry_offset(code, instruction));
    *result = cpython::go_on(ts, frame, s.kind == StepResult::Raised);
    return false;
  };

  PyObject* result = nullptr;
  if (num_images && !advance(images, num_images, regs, &result)) return result;
  for (;;) {
    if (PyErr_CheckSignals() < 0) {
      cpython::set_position(frame, code.instructions[ip].offset);
      return cpython::go_on(ts, frame, true);
    }
    std::shared_ptr<Entry> entry;
    if (idle < kMostIdle) {
      PyObject** slots = cpython::slots(frame);
      std::vector<PyObject*> start;
      if (ip == 0) {
        // Free variables are not copied into the frame yet.
        auto* function = reinterpret_cast<PyFunctionObject*>(cpython::function(frame));
        start.assign(slots, slots + code.num_locals_plus);
        for (int i = 0; i < code.num_frees; ++i)
          start[code.num_locals_plus - code.num_frees + i] = PyTuple_GET_ITEM(function->func_closure, i);
        slots = start.data();
      }
      FrameView view{&code, cpython::globals(frame), cpython::builtins(frame), cpython::function(frame), slots, cpython::depth(frame), ip};
      // Code that capture runs (reprs, torch's functions) must find this frame below it.
      cpython::set_position(frame, code.instructions[ip].offset);
      cpython::link(ts, frame);
      std::shared_ptr<Place> here = place(co, ip);
      entry = find(here, view);
      cpython::unlink(ts, frame);
      if (!entry && PyErr_Occurred()) return cpython::go_on(ts, frame, true);
    }
    if (!entry) {
      cpython::set_next(frame, entry_offset(code, ip));
      return cpython::go_on(ts, frame, false);
    }
    idle = entry->has_graph ? 0 : idle + 1;
    Registers r(static_cast<size_t>(entry->recipe.num_registers()));
    cpython::link(ts, frame);
    Ran ran = execute(*entry, r.get());
    cpython::unlink(ts, frame);
    if (ran == Ran::Raised) return cpython::go_on(ts, frame, true);
    if (ran == Ran::Uncompiled) {
      r.clear();
      cpython::set_next(frame, entry_offset(code, ip));
      return cpython::go_on(ts, frame, false);
    }
    if (!entry->stop && entry->recipe.handled != kNoReg) set_handled(ts, r.get()[entry->recipe.handled]);
    if (!entry->stop) return leave(ts, frame, code, Py_NewRef(r.get()[entry->recipe.result]));
    const std::vector<FrameImage>& f = entry->recipe.frames;
    BRAZE_CHECK(!f.empty(), "a break without frames");
    if (!advance(f.data(), f.size(), &r, &result)) return result;
  }
}

}  // namespace braze::capture
