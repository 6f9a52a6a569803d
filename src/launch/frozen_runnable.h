// options={"freezing": True}: a graph of which the part that reads parameters and buffers alone ran before.
#pragma once
#include "launch/launch.h"

namespace braze::launch {

// nullptr, and `captured` as it was: nothing of the graph is frozen.
std::unique_ptr<Runnable> make_frozen_runnable(Captured& captured, const Options& options, bool texts);

}  // namespace braze::launch
