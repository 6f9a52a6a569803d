// options={"autotune_seconds": n}: the layout of a graph's convolutions on a CPU, found out by timing the whole graph.
#pragma once
#include "launch/launch.h"

namespace braze::launch {

// nullptr, and `captured` as it was: there is nothing to choose (driver::distinct_layouts), no time for it, or the
// graph may not be run more often than the program asks for (launch/run_twice.h).
std::unique_ptr<Runnable> make_tuned_layout(Captured& captured, const Options& options, bool texts);

}  // namespace braze::launch
