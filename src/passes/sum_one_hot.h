#pragma once
#include "graph/graph.h"

namespace braze::passes {

// A sum along a dimension of what is 0 but at one place of it, as the gradient of a picked logit is, is what is at that
// place: where(arange == place, x, 0) is not made for each class only to be added up.
graph::Graph sum_one_hot(const graph::Graph& g);

}  // namespace braze::passes
