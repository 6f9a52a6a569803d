// What is written to inputs, written to their memory at once.
//
// A program computes what it writes to an input into a buffer of its own, which is copied over the input when all is
// done: until then the inputs are as they were, so that a run that fails may be made again. Where that buffer looks as
// the input does, nothing reads the input later than the nest that makes it, and nothing can fail from there on, it may
// as well be the input's own memory: a step of an optimizer writes each parameter once instead of twice.
#pragma once
#include <vector>

#include "loop/loop.h"

namespace braze::schedule {

// Per writeback of the program: whether its buffer may live in the memory of its input.
std::vector<bool> writes_through(const loop::Program& program);

// Whether `made` may have the address of `dying` in this nest: every element of `dying` that the nest reads is read
// before `made` is written at the same index, and by the same outer point.
bool in_place(sym::ExprArena& arena, const loop::Nest& nest, loop::BufferId dying, loop::BufferId made);

}  // namespace braze::schedule
