#pragma once
#include "graph/targets.h"
#include "passes/rewrite.h"

namespace braze::passes {

// Attention of one query over keys and values that lie ready (a token of a language model and its cache): as the two
// products of a row that it is, with the softmax between, which take their neighbours in: a cache that is repeated for
// grouped heads is read where it is, and the mask is computed where it is added. On devices whose library is slow for
// products of a row.
Graph unfold_attention(const Graph& g, const Targets& targets);

}  // namespace braze::passes
