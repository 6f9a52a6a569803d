// Freezing: what several products make of one operand by frozen matrices alone is one product by a matrix that is made
// once: chains of linear layers with nothing between them, and sums of such, as an adapter beside a layer (LoRA; Hu et
// al., 2021).
#pragma once
#include "graph/graph.h"

namespace braze::passes {

// Of float and double; results differ by rounding. Where the new product multiplies less than those it stands for, of
// which nothing else is read. The new matrices are operators of the graph, to be taken out of it (passes/frozen.h).
graph::Graph merge_products(const graph::Graph& g);

}  // namespace braze::passes
