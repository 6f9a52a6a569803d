// Views that are computed as copies, since kernels read no complex numbers.
#pragma once
#include "graph/graph.h"

namespace braze::graph {

// Whether a node of OpClass::View gives memory of its own: complex numbers as reals, or reals as complex numbers.
bool is_copied_view(const Graph& graph, const Node& node);
// What owns the memory of a value: what it is a view of, if it is one.
ValueId memory_root(const Graph& graph, ValueId v);

}  // namespace braze::graph
