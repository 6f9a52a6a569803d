// addmm on a GPU as a product and an addition, where what reads it is a kernel anyway: the addition then costs nothing, and a
// product without epilogue has more and better kernels to choose from.
#pragma once
#include "graph/graph.h"

namespace braze::passes {

graph::Graph unfuse_bias(const graph::Graph& g);

}  // namespace braze::passes
