#pragma once
#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace braze::passes {

// Asks what nodes that may raise ask of their operands' values (graph/raises.h) by nodes of their own (braze::check),
// where the node's result is not computed as a whole: it is unused, or only a part of it is read, as of table[rows][0].
// Such nodes may then be dropped.
//
// Of a joint graph, `results` is the number of its forward outputs, and `tangents` the numbers of its inputs that the
// backward brings. The forward half then raises what eager's forward raises, though only the backward half reads the
// result. Without: outputs.size(), {}.
graph::Graph keep_checks(const graph::Graph& graph, size_t results, const std::vector<uint32_t>& tangents);

}  // namespace braze::passes
