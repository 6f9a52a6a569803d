// Which kernels may read inputs before what precedes them has ended.
//
// A GPU can start a kernel while the one before it still runs (programmatic dependent launch); it then waits by itself
// before it touches what that one writes. What no item of the program has written since the kernel before that, it may
// read at once: the weights of a layer are on their way while the layer before ends. Nothing is known of what runs
// before the program.
#pragma once
#include "graph/targets.h"
#include "loop/loop.h"

namespace braze::schedule {

// Sets Mapping::ahead of nests on such targets.
void read_ahead(loop::Program& program, const Targets& targets);

}  // namespace braze::schedule
