#pragma once
#include "graph/graph.h"

namespace braze::passes {

// Drops nodes of which no result is used by an output, a writeback or a node with trait Effect. Random nodes are kept
// even when unused, because later random numbers depend on them; nodes that may raise (graph/raises.h), because eager
// would. Inputs stay.
graph::Graph dce(const graph::Graph& g);

}  // namespace braze::passes
