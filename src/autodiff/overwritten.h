// Inputs that the forward half overwrites and the backward half reads.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace braze::autodiff {

// The graph with a copy of each such input, made before it is written to, in its place in the backward half: a value
// that can be kept. `tangents`: numbers of inputs.
graph::Graph keep_overwritten(graph::Graph g, const std::vector<uint32_t>& tangents);

}  // namespace braze::autodiff
