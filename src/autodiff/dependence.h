// Which tangents each value is a function of.
#pragma once
#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace braze::autodiff {

// `tangents`: numbers of inputs. Per value: positions in it, ascending; empty for values of the forward computation.
std::vector<std::vector<uint32_t>> tangents_of(const graph::Graph& g, const std::vector<uint32_t>& tangents);

}  // namespace braze::autodiff
