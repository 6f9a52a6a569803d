#include "passes/optimize.h"

#include <utility>

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

graph::Graph optimize(const graph::Graph& captured, const Options& options) {
  graph::Graph g = decompose(hoist_assertions(captured));
  if (options.rng == Rng::Philox) g = seed_random(std::move(g));
  g = fold(g);
  g = simplify_views(g);
  g = cse(g);
  g = accumulate_scatter(g);
  g = fuse_activation(g);
  g = unfuse_bias(g);
  g = channels_last(std::move(g));
  return ask_less(dce(g));
}

}  // namespace braze::passes
