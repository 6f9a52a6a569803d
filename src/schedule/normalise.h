// The canonical form of one nest: no axes of extent 1, axes in the order of the written buffer's strides, adjacent axes
// that every access runs through as one are one axis, and loop variables and Indirect symbols named by position and
// extent: equal layers get equal nests.
#pragma once
#include "loop/loop.h"

namespace braze::schedule {

// Without `reorder` axes keep their order.
void normalise(sym::ExprArena& arena, loop::Nest& nest, bool reorder = true);

// Only the names. `first_indirect`: number of the first Indirect symbol; returns the number after the last.
size_t canonical_names(sym::ExprArena& arena, loop::Nest& nest, size_t first_indirect = 0);

}  // namespace braze::schedule
