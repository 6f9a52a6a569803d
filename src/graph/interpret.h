// A slow, obvious interpreter of the tensor graph on dense host data: the oracle of the passes' tests.
//
// Elements are doubles, rounded to the value's dtype after every node (f16 and bf16 are rounded to f32 only; integers
// are exact below 2^53). Sizes must be constant, or bound through `symbols`. Throws InternalError for an operator it
// does not know.
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

// One tensor per graph output (an empty one for None), then one per writeback.
std::vector<HostTensor> interpret(const Graph& g, const std::vector<HostTensor>& inputs, const sym::Env& symbols = {});

}  // namespace braze::graph
