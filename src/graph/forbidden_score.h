// What takes a key out of attention by being added to its score.
#pragma once
#include "graph/types.h"

namespace braze::graph {

// No weight is left of a score with so much added, or less, whatever other scores there are. Of half types it is the
// lowest number of float16, which PyTorch itself adds for cuDNN where a mask of truths forbids.
inline double forbidden_score(DType dtype) { return size_of(dtype) == 2 ? -65504 : -1e30; }

}  // namespace braze::graph
