// A slow, obvious interpreter of the tensor graph on dense host data: the oracle of the passes' tests.
//
// Elements are doubles, rounded to the value's dtype after every node (f16 and bf16 are rounded to f32 only; integers
// are exact below 2^53; of complex numbers real and imaginary part follow each other). Sizes are constant, bound
// through `symbols`, or found by nodes (unbacked).
//
// Random operators: each takes the next number of a generator that starts anew in every run, and its elements are a
// function of that number and of their position, the one of a seeded operator with that seed (graph/random.h).
#pragma once
#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace braze::graph {

struct HostTensor {
  DType dtype = DType::F32;
  std::vector<int64_t> sizes;
  std::vector<double> data;  // row-major
};

// One tensor per graph output (an empty one for None), then one per writeback. Throws InternalError for an operator
// that has no rule.
std::vector<HostTensor> interpret(const Graph& g, const std::vector<HostTensor>& inputs, const sym::Env& symbols = {});

}  // namespace braze::graph
