// The functions that attention applies to each of its scores (flex_attention's score_mod and mask_mod, and the
// derivative of the former), as a graph over numbers.
//
// Its inputs are the score, its four indices, and the gradient of what score_mod gives, all tensors without dimensions;
// then the operands: tensors that the functions captured, or what they compute from these alone. Its outputs are what
// score_mod gives, whether mask_mod keeps the score, and the gradient of the score; none where there is no such
// function. Its operators are pointwise, or index an operand by numbers.
#pragma once
#include <functional>
#include <optional>
#include <span>

#include "graph/graph.h"

namespace braze::graph {

enum ScoreInput : uint32_t { kScore, kBatch, kHead, kQuery, kKey, kTangent, kScoreInputs };
enum ScoreOutput : uint32_t { kScored, kKept, kGradient, kScoreOutputs };

struct ScoreGraph {
  Graph graph;
  std::vector<ValueId> operands;  // values of the graph that it was cut from
};

// The part of `whole` that computes `outputs` from `inputs`. `literal`: the number that a value of `whole` is in every
// run, if there is one. Throws Unsupported where that part is more than functions of one score.
ScoreGraph cut_score_graph(const Graph& whole, std::span<const ValueId> inputs, std::span<const ValueId> outputs,
                           const std::function<std::optional<double>(ValueId)>& literal);

// Where an output is the input kScore or kTangent itself.
bool is_score_itself(const Graph& scores, ScoreOutput output);

// One output for all points of a tensor of scores: a graph of the inputs score and tangent, both of `sizes` (batch,
// head, query, key), and of the operands, whose types are in `arena`.
Graph spread_score_graph(const Graph& scores, ScoreOutput output, std::shared_ptr<sym::ExprArena> arena,
                         std::span<const Expr> sizes, const std::vector<TensorType>& operands);

}  // namespace braze::graph
