#pragma once
#include "graph/graph.h"

namespace braze::passes {

// Removes what computes nothing: copies with the layout that their operand has, views of the same type, x * 1, x / 1, x
// - 0, integer x + 0, casts of what has the dtype. Only bit-exact rules: float x + 0 stays, because -0 + 0 is 0. A copy
// that leaves the graph stays a copy (see escaping() in rewrite.h).
graph::Graph fold(const graph::Graph& g);

}  // namespace braze::passes
