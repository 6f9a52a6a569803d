// How a nest is to be run: which axis is the vector, tiles for transposed reads, points per task. The meaning never
// depends on it.
#pragma once
#include "loop/loop.h"

namespace braze::schedule {

void choose_mapping(sym::ExprArena& arena, loop::Nest& nest);

}  // namespace braze::schedule
