#pragma once
#include "graph/targets.h"
#include "passes/rewrite.h"

namespace braze::passes {

// Attention of one query over keys and values that are repeated for grouped heads (a token of a language model and its
// cache): as the two products of a row that it is, with the softmax between, which read the cache where it lies. A
// library's kernel would be as fast, but not the copy of the cache before it. On devices whose library is slow for
// products of a row.
Graph unfold_attention(const Graph& g, const Targets& targets);

}  // namespace braze::passes
