// Loop program in, fused and mapped loop program out; both mean the same. Reads top to bottom in schedule.cpp.
#pragma once
#include <functional>

#include "base/options.h"
#include "graph/targets.h"
#include "loop/loop.h"

namespace braze::schedule {

// Whether the target's code generator takes a nest.
using Takes = std::function<bool(const loop::Program&, const loop::Nest&)>;

// `takes`: absent, every nest is taken.
loop::Program schedule(const loop::Program& program, const Options& options, const Targets& targets,
                       const Takes& takes = {});

}  // namespace braze::schedule
