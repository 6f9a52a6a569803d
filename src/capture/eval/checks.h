// Conditional jumps on what only the run knows, one side of which does nothing but raise (the argument checks of
// distributions, assert).
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

struct Frame;
struct Instruction;

// At such a jump, its condition on the stack: the run checks the condition, and `next` becomes the side that does not
// raise. False: not of that kind.
bool check_in_run(Translator&, Frame& f, const Instruction& ins, int& next);

}  // namespace braze::capture
