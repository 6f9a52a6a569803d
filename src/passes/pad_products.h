// Products of half types on a GPU whose matrices have rows of other than a multiple of 16 bytes, for which its library
// has kernels of a fraction of the speed (on an H200 a seventh): their operands with zeros after the last row or
// column, and the part of the result that is asked for. What a vocabulary of 50257 words makes of a language model's
// last layer, forward and backward.
#pragma once
#include "graph/graph.h"
#include "graph/targets.h"

namespace braze::passes {

// Of known sizes, where the copies cost less than the product gains.
graph::Graph pad_products(const graph::Graph& g, const Targets& targets);
// Whatever the copies cost.
graph::Graph pad_all_products(const graph::Graph& g, const Targets& targets);

}  // namespace braze::passes
