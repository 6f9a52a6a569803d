// Scatters.
//
// What may change one place of a tensor twice are the points of a stage, which a CPU runs in order. A GPU adds to
// memory by one instruction, and PyTorch promises no order of its writes there: all points are outer ones, so that a
// scatter of millions of elements to few places is not the work of one block. On a CPU columns that go to places of
// their own are updated some at a time, as they lie in memory, and not one after the other down all rows.
#pragma once
#include "graph/targets.h"
#include "loop/loop.h"

namespace braze::schedule {

void spread_updates(loop::Program& program, const Targets& targets);

}  // namespace braze::schedule
