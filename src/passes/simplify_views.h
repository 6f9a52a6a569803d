#pragma once
#include "graph/graph.h"

namespace braze::passes {

// Composes chains of views: a view of a view, a permutation of a permutation (transposes included), an expansion of an
// expansion; and drops those that come out as the identity. The intermediate views are left to dce.
graph::Graph simplify_views(const graph::Graph& g);

}  // namespace braze::passes
