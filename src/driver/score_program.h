// Functions of attention's scores as loop programs.
#pragma once
#include <array>

#include "graph/score_graph.h"
#include "lower/lower.h"

namespace braze::driver {

// What computes one output for every score of a tensor of these sizes (see graph::spread_score_graph); one nest, where
// a kernel of attention's can take it in.
loop::Program score_program(const graph::Graph& scores, graph::ScoreOutput output,
                            std::shared_ptr<sym::ExprArena> arena, const std::array<sym::Expr, 4>& sizes,
                            const std::vector<TensorType>& operands);

}  // namespace braze::driver
