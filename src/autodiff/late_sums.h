// Sums along a residual stream.
#pragma once
#include <vector>

#include "autodiff/cost.h"
#include "graph/graph.h"

namespace braze::autodiff {

// Per node: whether work of its own lies between an operand of it that is read before that work, and another that the
// work made, both as large as its result. Computed again, each kernel of a backward would read the whole chain of what
// was added, so that such a sum is kept where it is needed. (The rule is that of the min-cut partitioner of PyTorch
// about uses that are far apart.) `after`: nodes that are left out; `root`: per value, what it is a view of, in the
// end.
std::vector<bool> late_sums(const graph::Graph& g, const std::vector<bool>& after,
                            const std::vector<graph::ValueId>& root, const std::vector<Repeat>& repeats);

}  // namespace braze::autodiff
