// The whole pipeline, readable top to bottom in driver.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "autodiff/partition.h"
#include "base/options.h"
#include "base/timers.h"
#include "graph/graph.h"
#include "plan/plan.h"

namespace braze::driver {

struct Artefact {
  plan::Plan plan;
  Timings timings;
  size_t nests = 0, kernels = 0, externs = 0;
  bool from_disk_cache = false;
};

// Texts of the stages, filled when asked (BRAZE_LOGS, explain, failure dumps).
struct Dumps {
  std::string graph, lowered, scheduled, kernels;
};

// Throws Unsupported or InternalError; never returns wrong code for what it could not take.
// `owns_inputs`: the caller may drop inputs after their last use (plan::Release).
Artefact compile(const graph::Graph& captured, const Options& options, Dumps* dumps = nullptr, bool owns_inputs = false);

// A joint graph cut in two, and the forward half compiled: its outputs are the joint's, then the values that are saved. A
// backward graph (parts.backward, or what autodiff::specialise makes of it) is compiled like any graph, when it is needed.
struct Training {
  autodiff::Partition parts;
  Artefact forward;
};
Training compile_training(const autodiff::Joint& captured, const Options& options, Dumps* dumps = nullptr);

// The loop nests of a program in order, and their generated code as text.
std::vector<const loop::Nest*> nests_of(const loop::Program& program);
std::string sources(const loop::Program& program, const Options& options);

}  // namespace braze::driver
