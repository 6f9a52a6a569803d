// What there is to know of a convolution before its sizes.
#pragma once
#include <optional>

#include "graph/graph.h"

namespace braze::graph {

struct Convolution {
  const TensorType *x, *weight, *result;
  const IntList *stride, *padding, *dilation;
  sym::Expr groups;
};

// convolution(x, weight, bias or none, ...) over two dimensions, not transposed, of which all tensors are of one type
// and on one device. nullopt: something else.
std::optional<Convolution> convolution_of(const Graph& g, const Node& n);

}  // namespace braze::graph
