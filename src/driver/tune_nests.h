// options.autotune_seconds on a CPU: the nests of a program in the mapping that is the fastest on this machine.
#pragma once
#include "base/options.h"
#include "graph/targets.h"
#include "loop/loop.h"

namespace braze::driver {

// Compiles each nest in the mappings that schedule::other_mappings names besides its own, runs them by turns on memory
// of their own, full of ones, and gives it the fastest: the dearest nests first, for at most half of the options'
// seconds (the rest is for products, which are timed at the first call). A choice that this process or the disk knows
// is taken. Left as they are: nests of unknown sizes or of a GPU, and those that read at places which data names.
// False: some were left for lack of time, or a test prefers other ways than the fastest; that is not to be kept.
bool tune_nests(loop::Program& program, const Options& options, const Targets& targets);

}  // namespace braze::driver
