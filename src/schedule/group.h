// Which nests run as one: greedy by bytes saved, then by distance. Never a cycle, bounded size, enough parallel points.
#pragma once
#include "base/options.h"
#include "graph/targets.h"
#include "loop/loop.h"

namespace braze::schedule {

// The program's items after fusion, in a legal order near the original one. Fused nests are raw: stages of the parts
// one after another.
std::vector<loop::Item> fuse_items(const loop::Program& program, const Options& options, const Targets& targets);

}  // namespace braze::schedule
