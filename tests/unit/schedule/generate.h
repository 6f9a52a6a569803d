// Random loop programs as lower/ would make them: pointwise nests and reductions over broadcast, transposed, reshaped
// and gathered operands.
#pragma once
#include <random>

#include "loop/interpret.h"
#include "loop/loop.h"

namespace braze::schedule::testing {

struct Generated {
  loop::Program program;
  std::vector<loop::HostTensor> inputs;
};

Generated generate(uint64_t seed);

// Negates its only view.
std::vector<loop::HostTensor> run_extern(const loop::ExternCall& call, const std::vector<loop::HostTensor>& views);

}  // namespace braze::schedule::testing
