// The order of instructions where the same is calculated of several vectors.
#pragma once
#include "codegen/llvm/vector_builder.h"

namespace braze::codegen::ir {

// Lets two calculations of a block, written one after the other, take turns: the instructions (before, middle] and
// (middle, last]. Each is mostly one long chain, a CPU looks ahead by a limited number of instructions, and LLVM keeps
// the order that it is given: of chains that take turns more is under way at a time. Does nothing where one needs the
// other. `before` is nullptr at the begin of the block.
void take_turns(llvm::Instruction* before, llvm::Instruction* middle, llvm::Instruction* last);

}  // namespace braze::codegen::ir
