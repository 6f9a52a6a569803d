// mode="reduce-overhead" for a graph of which a part touches the CPU: the other parts are recorded as CUDA Graphs, and
// it is run between them.
#pragma once
#include "launch/launch.h"

namespace braze::launch {

// nullptr, and `captured` as it was: the graph is better run whole (passes/split_by_device.h).
std::unique_ptr<Runnable> make_split_runnable(Captured& captured, const Options& options, bool texts);

}  // namespace braze::launch
