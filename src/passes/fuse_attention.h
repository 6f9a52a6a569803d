// Attention that a model writes out, softmax(scale * q @ k^T + mask) @ v, as PyTorch's fused operator, which never has
// the matrix of scores in memory. The forms are rows of passes/attention_forms.def.
//
// Where every key is forbidden to a query, eager has NaN (a mask of -inf) or the mean of the values (one of finite
// numbers, onto which the scores are lost), and so has what is written here; the fused operator alone has 0.
#pragma once
#include "graph/graph.h"
#include "graph/targets.h"

namespace braze::passes {

// Before decompose, to which softmax is lost. On CPUs; attention of few scores stays as it is, since batched products
// and a kernel between them are faster there.
graph::Graph fuse_attention(const graph::Graph& g, const Targets& targets);

}  // namespace braze::passes
