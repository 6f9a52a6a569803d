// Convolutions of each channel by itself, which some libraries do far below the speed of memory.
#pragma once
#include "graph/graph.h"
#include "graph/targets.h"

namespace braze::graph {

// convolution(x, weight, bias or none, ...) over two dimensions, not transposed, of a half type or float: one channel
// in each group and as many results; window, strides, dilation, channels and the result's width known; a window of no
// more than kMostTaps places and kMostTapsOfRow in a row. By a target that makes those in kernels of ours; on a
// CPU float, of an image that a kernel makes for it alone (which writes it with the zeros around it) or a small one.
bool is_depthwise(const Graph& g, const Node& n, const Targets& targets);

// The same where x and the result have their channels next to each other, or on a CPU neighbours in a row: what
// lowering takes.
bool is_depthwise_kernel(const Graph& g, const Node& n, const Targets& targets);

}  // namespace braze::graph
