// Convolutions with windows of one element: products of two matrices, of an image that a CPU has in its caches.
#pragma once
#include "graph/graph.h"
#include "graph/targets.h"

namespace braze::graph {

// convolution(x, weight, bias or none, ...) over two dimensions in float on a CPU, not transposed, in one group, with a
// window of one element, without strides and padding, of known sizes, and so small that a library takes longer to begin
// than it gains. By a target whose kernels run such sums in strips.
bool is_pointwise_convolution(const Graph& g, const Node& n, const Targets& targets);

// The same in a layout that lowering takes: planes (neighbours in a row next to each other, in x and the result), or
// pixels (channels next to each other, and in the weight the factors of neighbouring results).
bool is_pointwise_convolution_kernel(const Graph& g, const Node& n, const Targets& targets);

}  // namespace braze::graph
