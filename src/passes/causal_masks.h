#pragma once
#include "passes/rewrite.h"

namespace braze::passes {

// Attention whose mask is made of positions alone does not read one. That of a query to the keys up to its own becomes
// the operator's own causal form, which skips what the mask forbids, half of the work; that which allows every key
// goes. Models whose code cannot ask for the values of a mask while it is traced make such masks (transformers does).
//
// A result differs where a key that the mask forbids has a score or a value that is no number: eager's is none then.
Graph causal_masks(const Graph& g);

}  // namespace braze::passes
