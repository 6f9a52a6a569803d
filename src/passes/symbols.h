// Where unbacked symbols come from and who needs them.
#pragma once
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace braze::passes {

// By Expr::id: the node that defines each unbacked symbol, the first of those whose result has it as a size, or that
// binds it.
std::unordered_map<uint32_t, size_t> symbol_definitions(const graph::Graph& graph);
// Unbacked symbols in a node's arguments and result types.
std::vector<sym::Expr> symbols_of(const graph::Graph& graph, const graph::Node& node);
std::vector<sym::Expr> symbols_of(const graph::Graph& graph, const TensorType& type);

}  // namespace braze::passes
