// Random graphs for the passes: chains of operators that passes merge, cancel, take apart and move.
#pragma once
#include "graph/graph.h"

namespace braze::passes {

// A function of the seed. Values stay small and functions smooth, so that other roundings stay roundings.
graph::Graph random_graph(uint64_t seed);

}  // namespace braze::passes
