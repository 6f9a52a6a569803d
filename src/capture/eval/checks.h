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

// Whether what the current instruction pushes goes nowhere but into such a jump: as it is, negated, compared with a
// constant, as the result of this function and of those that it was called from. Such a number may stay in the graph.
bool awaits_check(Translator&, const Frame& f);

// `not truth`, of a bool that only the run knows.
Variable* negated(Translator&, Variable* truth);

}  // namespace braze::capture
