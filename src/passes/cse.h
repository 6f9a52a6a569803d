#pragma once
#include "graph/graph.h"

namespace braze::passes {

// Merges nodes with the same operator, arguments and result types. Nodes with trait Effect or Nondeterministic stay,
// and so do two values that both leave the graph: eager gives the user two tensors.
graph::Graph cse(const graph::Graph& g);

}  // namespace braze::passes
