#include "driver/driver.h"

#include <algorithm>
#include <cstdlib>

#include "codegen/codegen.h"
#include "driver/build_plan.h"
#include "driver/compile_nests.h"
#include "lower/lower.h"
#include "passes/optimize.h"
#include "schedule/memory.h"
#include "schedule/schedule.h"

namespace braze::driver {
namespace {

// BRAZE_VERIFY=1 checks every stage's result; builds without NDEBUG and optimisation always do.
bool verify_stages() {
#ifdef __OPTIMIZE__
  static const bool on = [] {
    const char* value = std::getenv("BRAZE_VERIFY");
    return value && *value && std::string_view(value) != "0";
  }();
  return on;
#else
  return true;
#endif
}

}  // namespace

Artefact compile(const graph::Graph& captured, const Options& options, Dumps* dumps) {
  Artefact made;
  auto stage = [&](const char* name, auto&& run) {
    StageTimer timer(made.timings, name);
    return run();
  };
  auto checked = [](auto value) {
    if (verify_stages()) verify(value);
    return value;
  };
  if (verify_stages()) graph::verify(captured);

  graph::Graph graph = stage("optimize", [&] { return checked(passes::optimize(captured, options)); });
  if (dumps) dumps->graph = graph::print(graph);
  loop::Program lowered = stage("lower", [&] { return checked(lower::lower(graph, options)); });
  if (dumps) dumps->lowered = loop::print(lowered);
  loop::Program program = stage("schedule", [&] { return checked(schedule::schedule(lowered, options)); });
  if (dumps) dumps->scheduled = loop::print(program);
  schedule::MemoryPlan memory = stage("memory", [&] { return schedule::plan_memory(program); });
  codegen::Compiled code = stage("codegen", [&] { return compile_nests(program, options); });
  if (dumps) dumps->kernels = sources(program, options);
  made.plan = stage("plan", [&] { return checked(build_plan(program, memory, std::move(code), captured.inputs.size())); });

  for (const loop::Item& item : program.items) ++(std::holds_alternative<loop::Nest>(item) ? made.nests : made.externs);
  made.kernels = made.plan.kernels.size();
  return made;
}

std::vector<const loop::Nest*> nests_of(const loop::Program& program) {
  std::vector<const loop::Nest*> nests;
  for (const loop::Item& item : program.items)
    if (auto* n = std::get_if<loop::Nest>(&item)) nests.push_back(n);
  return nests;
}

std::string sources(const loop::Program& program, const Options& options) {
  std::string text;
  for (const loop::Nest* n : nests_of(program)) text += target_for_text(codegen::device_of(program, *n)).source(program, *n, options) + "\n";
  return text;
}

}  // namespace braze::driver
