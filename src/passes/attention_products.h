#pragma once
#include "graph/targets.h"
#include "passes/rewrite.h"

namespace braze::passes {

// Attention on a CPU as the two batches of products that it is, with the softmax of all scores between, where PyTorch's
// fused kernel multiplies with a library that is slow (Target::slow_f32_products), the scores fit the caches, and its
// statistics stay in the graph.
Graph attention_products(const Graph& g, const Targets& targets);

}  // namespace braze::passes
