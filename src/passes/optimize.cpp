#include "passes/optimize.h"

#include <chrono>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/strict.h"
#include "passes/accumulate_scatter.h"
#include "passes/ask_less.h"
#include "passes/channels_last.h"
#include "passes/cse.h"
#include "passes/dce.h"
#include "passes/decompose.h"
#include "passes/fold.h"
#include "passes/fuse_activation.h"
#include "passes/hoist_assertions.h"
#include "passes/seed_random.h"
#include "passes/simplify_views.h"
#include "passes/unfold_products.h"
#include "passes/unfuse_bias.h"
#include "passes/upload_scalars.h"

namespace braze::passes {
namespace {

bool always(const Options&) { return true; }
bool draws_by_philox(const Options& options) { return options.rng == Rng::Philox; }

constexpr Pass kPipeline[] = {
#define BRAZE_PASS(name, wanted) {#name, [](graph::Graph g) { return passes::name(std::move(g)); }, wanted},
#include "passes/passes.def"
#undef BRAZE_PASS
};

}  // namespace

std::span<const Pass> pipeline() { return kPipeline; }

graph::Graph optimize(const graph::Graph& captured, const Options& options, const Watch& watch) {
  graph::Graph g = captured;
  for (const Pass& pass : kPipeline) {
    if (!pass.wanted(options)) continue;
    auto start = std::chrono::steady_clock::now();
    g = pass.run(std::move(g));
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
