// Two nests as one: structure and legality, no judgement of profit.
//
// Both get the same outer axes: their outer spaces are walked in row-major order and split where one is finer. A nest
// without stage axes whose outer space is longer keeps the rest as axes of its stages (softmax: the pointwise part runs
// as rows and columns beside the row reductions); beside reductions of a few elements its axes may come in another
// order for that. The stages of `first` then run before those of `second` at every outer point, so whatever second
// reads of first's results must have been computed by the same outer point: its index equals the store's, or falls into
// the dense block that the stage stores there.
#pragma once
#include <optional>

#include "loop/loop.h"

namespace braze::schedule {

// nullopt: not legal, or not found to be. Values of `second` are renumbered after those of `first`; variables are
// canonical.
std::optional<loop::Nest> fuse(sym::ExprArena& arena, const loop::Nest& first, const loop::Nest& second);

bool is_pointwise(const loop::Nest& nest);  // no stage has axes

}  // namespace braze::schedule
