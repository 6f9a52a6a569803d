// What each instruction does: one function a row of cpython/opcodes.def, in the file of its concept. A row without one
// does not link.
//
// Operands are popped first and results pushed last, so that an instruction that fails is undone by restoring the
// stack's depth.
#pragma once
#include "capture/eval/translator.h"

namespace braze::capture {

// One instruction being carried out.
struct Execution {
  Translator& tr;
  Frame& f;
  const Instruction& ins;
  int next;                    // the instruction to go on with
  Variable* result = nullptr;  // set: the frame returns or yields this
};

class Instructions {
 public:
#define BRAZE_OPCODE(name) static void name(Execution&);
#include "capture/cpython/opcodes.def"
#undef BRAZE_OPCODE
};

}  // namespace braze::capture
