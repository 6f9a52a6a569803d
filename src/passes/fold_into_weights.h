// Freezing: scales and shifts of a convolution's channels by frozen values (batch norm at inference) become part of its
// weight and bias.
#pragma once
#include "graph/graph.h"

namespace braze::passes {

// Of float and double; results differ by rounding. The new weights are operators of the graph, to be taken out of it
// (passes/frozen.h).
graph::Graph fold_into_weights(const graph::Graph& g);

}  // namespace braze::passes
