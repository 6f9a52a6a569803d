// Bilinear resampling on a CPU as two of one dimension each, of rows that are made of whole rows, and of columns, which
// alone have a computed place for each element: where there are fewer rows. Floats and doubles only: the value between
// would be rounded.
#pragma once
#include "graph/graph.h"
#include "graph/targets.h"

namespace braze::passes {

graph::Graph split_resampling(const graph::Graph& g, const Targets& targets);

}  // namespace braze::passes
