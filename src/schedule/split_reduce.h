// A reduction with many elements and few results becomes two nests: partial results by many points, then theirs.
#pragma once
#include "graph/targets.h"
#include "loop/loop.h"

namespace braze::schedule {

// Expects normalised nests. Adds Temp buffers for the partial results. `open`: on a GPU, also where the length is open.
void split_reductions(loop::Program& program, const Targets& targets, bool open);

}  // namespace braze::schedule
