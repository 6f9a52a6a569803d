// Which tangents each value is a function of.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace braze::autodiff {

// Per value: positions among the inputs of kind Tangent, ascending; empty for values of the forward computation.
std::vector<std::vector<uint32_t>> tangents_of(const graph::Graph& g);

}  // namespace braze::autodiff
