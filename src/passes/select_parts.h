#pragma once
#include "graph/targets.h"
#include "passes/rewrite.h"

namespace braze::passes {

// A small concatenation on a GPU, where a launch costs more than what it moves, as a choice among its parts by index:
// an element that is computed where it is read, in place of a kernel for each part and a buffer between.
Graph select_parts(const Graph& g, const Targets& targets);

}  // namespace braze::passes
