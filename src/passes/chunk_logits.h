#pragma once
#include "graph/graph.h"
#include "graph/targets.h"

namespace braze::passes {

// A cross entropy of a linear layer over a large vocabulary never holds all logits: classes are taken in chunks. Each
// chunk's logits give their maximum, the sum of their exponentials and what the target picks of them; the backward
// computes them again, makes the chunk's gradient of the logits, and of it its rows of the weight's gradient and its
// part of the input's, which is summed up in the type that is computed in. Before losses are decomposed; forward and
// backward, where both are there, at once. Only where nobody else sees the logits or their gradient.
//
// The products have one argument more ("again", see graph/ops.def): the partition computes them twice rather than keep
// what they make.
graph::Graph chunk_logits(const graph::Graph& g, const Targets& targets);

}  // namespace braze::passes
