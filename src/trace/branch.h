// A branch that a graph computes whether it is chosen or not: what may be in it, and where its gradients end.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <string>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"

namespace braze::trace {

// Why the nodes from this one on may not be computed in vain: one may raise an error that depends on data, has effects,
// or is an operator of which nothing is known. Empty: they may.
std::string why_not_in_vain(const graph::Graph& graph, size_t first);

// Edges of autograd that lead from the nodes behind `roots` with a number of at least `order` to older ones, or to
// leaves or `outer` nodes, get a node between that lets gradients pass only where the predicate is `when`; else they
// are zero. What the branch computed there may be NaN or infinite.
void end_gradients(const std::vector<at::Tensor>& roots, uint64_t order,
                   const std::unordered_set<const torch::autograd::Node*>& outer, const at::Tensor& predicate,
                   bool when);

}  // namespace braze::trace
