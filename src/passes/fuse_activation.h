// Where the matrix library has epilogues (on GPUs), relu (and in half precision tanh-gelu) of a product with a bias as
// one call: the library applies it to what it still holds in registers, which costs nothing, where a kernel of its own
// reads and writes everything once more. (Single precision gelu takes the library as long as a kernel.)
#pragma once
#include "graph/graph.h"
#include "graph/targets.h"

namespace braze::passes {

// Before unfuse_bias: what is fused here keeps its bias.
graph::Graph fuse_activation(const graph::Graph& g, const Targets& targets);

}  // namespace braze::passes
