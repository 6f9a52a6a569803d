// A sum of a tensor and of what a scatter adds up in zeros becomes a scatter that adds to that tensor: the table of a
// tied embedding gets its two gradients in one buffer, without one of zeros and without a pass over both.
#pragma once
#include "graph/graph.h"

namespace braze::passes {

// After fold and cse: zeros are told by the node that makes them. Single and double precision only: a half type would
// round at every addition to a large value.
graph::Graph accumulate_scatter(const graph::Graph& g);

}  // namespace braze::passes
