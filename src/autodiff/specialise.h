// The part of a backward graph that runs when only some outputs have gradients.
#pragma once
#include <cstdint>
#include <vector>

#include "autodiff/partition.h"

namespace braze::autodiff {

struct Backward {
  graph::Graph graph;            // outputs as before; a gradient that no given tangent reaches is invalid
  std::vector<uint32_t> inputs;  // per input: its number in the whole backward graph
};

// `given`: per tangent, whether there is one. What depends on the others alone is zero, which is left out of sums, so
// that nothing of it is computed: its values need not be finite. Inputs that are not read any more are left out,
// constants not.
Backward specialise(const Partition& parts, const std::vector<bool>& given);

}  // namespace braze::autodiff
