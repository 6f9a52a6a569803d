#include "driver/score_program.h"

#include "base/strict.h"
#include "driver/targets.h"
#include "passes/optimize.h"

namespace braze::driver {

loop::Program score_program(const graph::Graph& scores, graph::ScoreOutput output,
                            std::shared_ptr<sym::ExprArena> arena, const std::array<sym::Expr, 4>& sizes,
                            const std::vector<TensorType>& operands) {
  graph::Graph spread = graph::spread_score_graph(scores, output, std::move(arena), sizes, operands);
  if (verifying()) graph::verify(spread);
  const Options options;
  const Targets targets = targets_of(spread, options);
  return lower::lower_inlined(passes::optimize(spread, options, targets), options, targets);
}

}  // namespace braze::driver
