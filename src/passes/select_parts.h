#pragma once
#include "graph/targets.h"
#include "passes/rewrite.h"

namespace braze::passes {

// As a choice among their parts by index, that is an element which is computed where it is read, in place of a kernel
// for each part and a buffer between: a small concatenation on a GPU, where a launch costs more than what it moves; a
// stack of few along the last dimension there, whose parts alone would be written with gaps between; on a GPU any, and
// on every device a stack, in the formula of a matrix that is multiplied where it is read (of weights that are
// unpacked, say).
Graph select_parts(const Graph& g, const Targets& targets);

}  // namespace braze::passes
