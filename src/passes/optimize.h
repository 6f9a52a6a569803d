#pragma once
#include "base/options.h"
#include "graph/graph.h"

namespace braze::passes {

// All passes in order, from what tracing recorded to what lowering takes.
graph::Graph optimize(const graph::Graph& g, const Options& options);

}  // namespace braze::passes
