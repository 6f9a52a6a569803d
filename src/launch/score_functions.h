// A graph::ScoreGraph on tensors, by PyTorch's operators.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <string>

#include "graph/score_graph.h"

namespace braze::launch {

class ScoreFunctions {
 public:
  // Kept for the process: programs have few.
  static std::shared_ptr<const ScoreFunctions> of(const std::string& text);
  explicit ScoreFunctions(graph::Graph graph);

  const graph::Graph& graph() const { return graph_; }
  bool has(graph::ScoreOutput output) const { return graph_.outputs[output].valid(); }
  // `inputs`, of four dimensions that broadcast, in the order of graph::ScoreInput; those that the output does not
  // need may be undefined. The result broadcasts, too.
  at::Tensor run(graph::ScoreOutput output, const std::array<at::Tensor, graph::kScoreInputs>& inputs,
                 const std::vector<at::Tensor>& operands) const;

 private:
  graph::Graph graph_;
  std::array<std::vector<graph::NodeId>, graph::kScoreOutputs> nodes_;  // that compute each output
};

}  // namespace braze::launch
