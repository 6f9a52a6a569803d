// What a graph is compiled to when compiling it properly failed.
#pragma once
#include "driver/driver.h"

namespace braze::driver {

// A plan of calls into PyTorch, one per operator; kernels fill in random numbers alone. `graph` has been through the
// passes. Throws like compile().
Artefact compile_to_calls(const graph::Graph& graph, const Options& options, bool owns_inputs);

}  // namespace braze::driver
