// How a nest is to be run: which axis is the vector, tiles for transposed reads, points per task. The meaning never
// depends on it.
#pragma once
#include "loop/loop.h"

namespace braze::schedule {

// Outer points are not the vector of a nest with Local buffers.
void choose_mapping(const loop::Program& program, loop::Nest& nest);

}  // namespace braze::schedule
