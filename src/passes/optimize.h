// The pipeline of passes (passes.def).
#pragma once
#include <functional>
#include <span>

#include "base/options.h"
#include "graph/graph.h"
#include "graph/targets.h"

namespace braze::passes {

struct Pass {
  const char* name;
  graph::Graph (*run)(graph::Graph, const Targets&);
  bool (*wanted)(const Options&);  // whether the pipeline has it
};
std::span<const Pass> pipeline();

// Sees what each pass made, and how many seconds that took.
using Watch = std::function<void(const Pass&, const graph::Graph&, double seconds)>;

// All passes in order. With BRAZE_VERIFY=1 what each makes is verified: throws InternalError with its name.
graph::Graph optimize(const graph::Graph& captured, const Options& options, const Targets& targets,
                      const Watch& watch = {});

}  // namespace braze::passes
