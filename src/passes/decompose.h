#pragma once
#include "graph/graph.h"

namespace braze::passes {

// Replaces operators of class Decompose (softmax, normalisations, losses, ...) and a few others by pointwise operators,
// reductions, views and factories. Half types are computed in float, as ATen does. A node for which no exact rule
// exists (an argument out of the ordinary, a symbolic size of which too little is known) stays as it is and runs as an
// extern call. The rules are in decompose_*.cpp, one function per operator.
graph::Graph decompose(const graph::Graph& g);

}  // namespace braze::passes
