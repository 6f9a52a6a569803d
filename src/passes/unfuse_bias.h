// addmm and baddbmm as a product and an addition, where what reads them is a kernel anyway: the addition then costs
// nothing. On a GPU a product without epilogue has more and better kernels to choose from; on the CPU a BLAS that adds
// to its result needs the bias copied there first. So with the bias of a convolution.
#pragma once
#include "graph/graph.h"
#include "graph/targets.h"

namespace braze::passes {

graph::Graph unfuse_bias(const graph::Graph& g, const Targets& targets);

}  // namespace braze::passes
