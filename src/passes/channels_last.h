// Layout: convolutions on a GPU read and write channels-last, which is the layout of its fast kernels; what lies
// between them follows, so that data is reordered once at the region's edge instead of twice per convolution.
#pragma once
#include "graph/graph.h"

namespace braze::passes {

// Strides of values inside the graph change; results, writebacks and what views read keep theirs.
graph::Graph channels_last(graph::Graph g);

}  // namespace braze::passes
