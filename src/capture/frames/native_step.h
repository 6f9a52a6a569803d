// One instruction that was not captured, carried out natively on a real frame.
#pragma once
#include "capture/code/bytecode.h"
#include "capture/cpython/frame.h"

namespace braze::capture {

struct StepResult {
  enum Kind { Next, Raised, NotTaken } kind;
  int next = 0;  // Next: index of the instruction to go on with
};

// The operands are on the frame's stack. NotTaken: nothing was done, CPython's interpreter has to go on here.
// kw_names: of a Call, or nullptr. The frame is linked into the thread's frames while the step runs.
StepResult native_step(PyThreadState* ts, cpython::Frame* frame, const Bytecode& code, int instruction,
                       PyObject* kw_names);

}  // namespace braze::capture
