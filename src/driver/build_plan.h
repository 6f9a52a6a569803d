// Scheduled loops, their places in memory and their machine code, put together as a plan.
#pragma once
#include "codegen/codegen.h"
#include "driver/products.h"
#include "plan/plan.h"
#include "schedule/memory.h"

namespace braze::driver {

// `compiled` holds the program's nests in the order of its items. Memory whose size depends on data (unbacked symbols)
// is taken out of the arena and allocated where it is first written. `droppable`: per graph input, whether a call may
// drop it after its last use. `products`: items that become a plan::Tuned.
plan::Plan build_plan(const loop::Program& program, const schedule::MemoryPlan& memory, codegen::Compiled compiled,
                      std::vector<bool> droppable, const std::vector<FoundProduct>& products = {});

}  // namespace braze::driver
