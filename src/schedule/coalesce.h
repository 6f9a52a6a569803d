// Copies that only give a value another buffer go: the value is made in that buffer. (Register allocators' coalescing.)
// What changes places of a tensor begins with such a copy, as the graph has no tensors that change.
#pragma once
#include <optional>

#include "loop/loop.h"

namespace braze::schedule {

struct Copy {
  loop::BufferId from, to;
};
// A nest that does nothing but move every element of one buffer to the same place of another.
std::optional<Copy> whole_copy(const loop::Program& program, const loop::Item& item);

// Of normalised nests, before fusion.
void coalesce_copies(loop::Program& program);

}  // namespace braze::schedule
