#pragma once
#include "graph/graph.h"

namespace braze::passes {

// Removes what computes nothing: copies with the layout and the dtype that their operand has, views of the same type.
// A copy that leaves the graph stays a copy (see escaping() in rewrite.h).
graph::Graph fold(const graph::Graph& g);

}  // namespace braze::passes
