// addmm and baddbmm as a product and an addition, where kernels read the result anyway and add on the way.
#pragma once
#include "graph/graph.h"

namespace braze::passes {

// A BLAS that adds to its result needs the bias copied there first: a pass over memory that the reading kernel saves; on a GPU
// a product without epilogue has more and better kernels to choose from. Results that leave the graph, or that extern calls
// read, keep the single call. Only float and double: the half types would be rounded once more.
graph::Graph split_bias(const graph::Graph& g);

}  // namespace braze::passes
