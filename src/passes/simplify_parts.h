#pragma once
#include "graph/graph.h"

namespace braze::passes {

// Parts that were put together and are taken apart again, or the other way around: a slice of a `cat` that lies within
// one of its operands is of that operand, and a `cat` of all parts of one value in their order is that value.
graph::Graph simplify_parts(const graph::Graph& g);

}  // namespace braze::passes
