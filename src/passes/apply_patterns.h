#pragma once
#include <span>
#include <string_view>

#include "graph/graph.h"

namespace braze::passes {

// Applies the rules of passes/patterns.def, at each node the first that fits. Nodes that are left without a reader stay
// until dce.
graph::Graph apply_patterns(const graph::Graph& g);

std::span<const std::string_view> pattern_names();

}  // namespace braze::passes
