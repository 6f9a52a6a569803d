// Loop program in, fused and mapped loop program out; both mean the same. Reads top to bottom in schedule.cpp.
#pragma once
#include "base/options.h"
#include "graph/targets.h"
#include "loop/loop.h"

namespace braze::schedule {

loop::Program schedule(const loop::Program& program, const Options& options, const Targets& targets);

}  // namespace braze::schedule
