#include "passes/optimize.h"

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
#include "passes/unfuse_bias.h"

namespace braze::passes {

namespace {

graph::Graph checked(graph::Graph g, const char* pass) {
  if (!verifying()) return g;
  try {
    graph::verify(g);
  } catch (const InternalError& e) {
    throw InternalError(std::string("after ") + pass + ": " + e.what());
  }
  return g;
}

}  // namespace

graph::Graph optimize(const graph::Graph& captured, const Options& options) {
  graph::Graph g = checked(hoist_assertions(captured), "hoist_assertions");
  g = checked(decompose(g), "decompose");
  if (options.rng == Rng::Philox) g = checked(seed_random(std::move(g)), "seed_random");
  g = checked(fold(g), "fold");
  g = checked(simplify_views(g), "simplify_views");
  g = checked(cse(g), "cse");
  g = checked(accumulate_scatter(g), "accumulate_scatter");
  g = checked(fuse_activation(g), "fuse_activation");
  g = checked(unfuse_bias(g), "unfuse_bias");
  g = checked(channels_last(std::move(g)), "channels_last");
  g = checked(dce(g), "dce");
  return checked(ask_less(std::move(g)), "ask_less");
}

}  // namespace braze::passes
