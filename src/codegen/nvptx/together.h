// Which nests of a run share a launch.
//
// A launch costs a microsecond or two whatever it does, and leaves most of the GPU idle where it is small: the
// projections of one token to queries, keys and values, each too small to fill the GPU, are one launch of which some
// blocks compute queries, others keys, others values.
#pragma once
#include "codegen/codegen.h"
#include "codegen/nvptx/emitter.h"

namespace braze::codegen::nvptx {

// The run cut into launches, in order.
std::vector<std::vector<Part>> launches_of(const Program& program, const Run& run, const Target& target);

}  // namespace braze::codegen::nvptx
