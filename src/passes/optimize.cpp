#include "passes/optimize.h"

#include <chrono>
#include <string>
#include <type_traits>
#include <utility>

#include "all_passes.h"  // made by the build from passes.def
#include "base/check.h"
#include "base/strict.h"

namespace braze::passes {
namespace {

bool always(const Options&) { return true; }
bool with_patterns(const Options& options) { return options.patterns; }
bool with_layouts(const Options& options) {
  return options.reordering && options.convolution_layout != ConvolutionLayout::Recorded;
}
bool with_packed_weights(const Options& options) { return options.freezing && options.packs_weights; }
bool draws_by_philox(const Options& options) { return options.rng == Rng::Philox; }

// What a pass decides by the machine it asks of the targets, which it then takes after the graph.
template <class Run>
graph::Graph run_pass(Run& pass, graph::Graph&& g, const Targets& targets) {
  if constexpr (std::is_invocable_v<Run, graph::Graph, const Targets&>)
    return pass(std::move(g), targets);
  else
    return pass(std::move(g));
}

constexpr Pass kPipeline[] = {
#define BRAZE_PASS(name, wanted) \
  {#name, [](graph::Graph g, const Targets& targets) { return run_pass(passes::name, std::move(g), targets); }, wanted},
#include "passes/passes.def"
#undef BRAZE_PASS
};

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

graph::Graph optimize(const graph::Graph& captured, const Options& options, const Targets& targets,
                      const Watch& watch) {
  graph::Graph g = captured;
  for (const Pass& pass : kPipeline) {
    if (!pass.wanted(options)) continue;
    auto start = std::chrono::steady_clock::now();
    g = pass.run(std::move(g), targets);
    if (watch) watch(pass, g, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (!verifying()) continue;
    try {
      graph::verify(g);
    } catch (const InternalError& e) {
      throw InternalError(std::string("after ") + pass.name + ": " + e.what());
    }
  }
  return g;
}

}  // namespace braze::passes
