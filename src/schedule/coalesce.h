// Copies that only give a value another buffer go: the value is made in that buffer. (Register allocators' coalescing.)
// What changes places of a tensor begins with such a copy, as the graph has no tensors that change.
#pragma once
#include "loop/loop.h"

namespace braze::schedule {

// Of normalised nests, before fusion.
void coalesce_copies(loop::Program& program);

}  // namespace braze::schedule
