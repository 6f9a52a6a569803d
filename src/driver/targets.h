// The machines that a program is compiled for: the CPU of this process or that which BRAZE_CPU names, and the GPUs of
// its devices. A GPU that is not here is described as a common one, so that every stage before machine code, and its
// text, can be had everywhere; Target::unavailable then says why it cannot run.
#pragma once
#include "base/options.h"
#include "graph/graph.h"
#include "graph/targets.h"
#include "loop/loop.h"

namespace braze::driver {

Targets targets_of(const graph::Graph& graph, const Options& options);
Targets targets_of(const loop::Program& program);

}  // namespace braze::driver
