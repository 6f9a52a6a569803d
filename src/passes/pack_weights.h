// Freezing on the CPU: convolutions and products with frozen weights as calls of oneDNN's that take the weight in the
// layout of its kernels (graph/packed_weight.h), which launch/ makes once.
#pragma once
#include "graph/graph.h"
#include "graph/targets.h"

namespace braze::passes {

graph::Graph pack_weights(const graph::Graph& g, const Targets& targets);

}  // namespace braze::passes
