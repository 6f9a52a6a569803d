#pragma once
#include "graph/graph.h"

namespace braze::autodiff {

// Random masks of zeros and ones in floating point (dropout) are seen by their readers through bool, so that what is
// kept for the backward is a byte per element.
graph::Graph narrow_masks(const graph::Graph& joint);

}  // namespace braze::autodiff
