// addmm and baddbmm as a product and an addition, where kernels read the result anyway and add on the way.
#pragma once
#include "graph/graph.h"

namespace braze::passes {

// A BLAS that adds to its result needs the bias copied there first: a pass over memory that the reading kernel saves.
// Results that leave the graph, or that extern calls read, keep the single call. Only on the CPU (a GPU's
// BLAS adds the bias on the way), and only float and double: the half types would be rounded once more.
graph::Graph split_bias(const graph::Graph& g);

}  // namespace braze::passes
