#pragma once
#include "graph/graph.h"

namespace braze::passes {

// Random operators become functions of seeds (graph/random.h), each drawn from PyTorch's default generator where the
// operator stood: calls differ, torch.manual_seed repeats them, and what is computed again for the backward sees the
// same numbers. An operator with a generator of its own, or with arguments that eager refuses, stays as it is.
graph::Graph seed_random(graph::Graph g);

}  // namespace braze::passes
