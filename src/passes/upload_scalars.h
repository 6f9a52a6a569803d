// Numbers that the CPU computes for kernels of a GPU, moved there together.
#pragma once
#include "graph/graph.h"

namespace braze::passes {

using graph::Graph;

// Eager hands a 0-dimensional tensor of the CPU to each of a GPU's kernels that reads it by value; a kernel of many ops
// can't take them so. All of them that depend on nothing of the GPU's are stacked, moved at once without waiting, and
// read from there: an optimizer's bias corrections are one copy in place of an unfused op for each parameter.
Graph upload_scalars(const Graph& g);

}  // namespace braze::passes
