// Which local variables can still be read.
#pragma once
#include <vector>

#include "capture/code/bytecode.h"

namespace braze::capture {

// Whether the code may read locals by name, its own or those of the functions that called it.
bool looks_at_frames(PyCodeObject* code);
// Per slot of localsplus: may its value be read from the instruction on (before anything is stored to it)? Cells and
// free variables always count as read, and so does everything in code that may look at its own frame (locals(),
// eval...).
std::vector<bool> live_locals(const Bytecode& code, int instruction);

}  // namespace braze::capture
