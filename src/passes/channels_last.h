// Layout: convolutions that prefer it (on GPUs, with packed weights, and where Target::prefers_channels_last says so)
// read and write channels-last, which is the layout of the fast kernels; what lies between them follows, so that data
// is reordered once at the region's edge instead of twice per convolution.
#pragma once
#include "graph/graph.h"
#include "graph/targets.h"

namespace braze::passes {

// Strides of values inside the graph change; results, writebacks and what views read keep theirs.
graph::Graph channels_last(graph::Graph g, const Targets& targets);

}  // namespace braze::passes
