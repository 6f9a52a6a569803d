// How a nest is to be run: which axis is the vector, tiles for transposed reads, points per task. The meaning never
// depends on it.
#pragma once
#include <vector>

#include "base/options.h"
#include "graph/targets.h"
#include "loop/loop.h"

namespace braze::schedule {

// The machine that the nest runs on: where it stores.
const Target& target_of(const Targets& targets, const loop::Program& program, const loop::Nest& nest);

// What an outer point costs (1: an addition of one element), as an expression of sizes, and what a task is to cost at
// least: where only the run knows the former, it chooses the points per task.
sym::Expr point_work(sym::ExprArena& arena, const loop::Nest& nest);
int64_t task_cost(const Target& target, const loop::Nest& nest);

// Outer points are not the vector of a nest with Local buffers.
void choose_mapping(const Target& target, const loop::Program& program, loop::Nest& nest, const Options& options = {});

// How else the nest may be run on a CPU, for whoever times it: its vector along another axis, with tiles or without
// them, in tasks of another size where several `threads` share it. None of a nest whose points may meet in memory.
std::vector<loop::Mapping> other_mappings(const loop::Program& program, const loop::Nest& nest, int threads);

}  // namespace braze::schedule
