#pragma once
#include "graph/graph.h"

namespace braze::passes {

// Moves each _assert_scalar up to where its symbols are defined: what was learnt from it holds for all that comes after
// that.
graph::Graph hoist_assertions(const graph::Graph& graph);

}  // namespace braze::passes
