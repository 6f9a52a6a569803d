// A compiled region once more, by PyTorch's own operators, so that what its backward gives has a history: for gradients
// that are to be differentiated again, and for those that come in batches.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <vector>

#include "base/options.h"
#include "graph/graph.h"
#include "launch/compiled_graph.h"
#include "launch/replay.h"
#include "launch/training.h"
#include "trace/ambient.h"

namespace braze::launch {

class UncompiledRegion {
 public:
  // `forward`: its inputs and outputs; it, `gradients` and `views` outlive this. `random`: nullptr if it draws nothing
  // that could be drawn again.
  UncompiledRegion(const graph::Graph& forward, const trace::Gradients& gradients,
                   const std::vector<trace::OutputView>& views, std::shared_ptr<const Constants> constants,
                   std::unique_ptr<RandomReplay> random, bool draws, const Options& options);
  ~UncompiledRegion();
  UncompiledRegion(const UncompiledRegion&) = delete;
  void keep(std::unique_ptr<trace::TorchCalls> calls);
  // The generator's state has to be noted before each call that may be run again.
  bool replays_random() const { return random_ != nullptr; }

  struct Call {
    // Per input of the graph what it held, without history; undefined for constants, and where it does not matter. Not
    // written to.
    torch::autograd::variable_list inputs;
    torch::autograd::edge_list edges;  // per differentiable input: where its gradient goes
    std::vector<int64_t> symbols;      // of the graph
    at::Tensor random_state;           // of the generator before the call
    std::vector<at::Tensor> drawn;     // or what the call drew
  };
  // Gradients of the differentiable inputs, with histories if `create_graph`. `tangents`: undefined ones are zero.
  // Without the GIL. Throws what PyTorch's operators throw, and std::runtime_error for a region that cannot be run
  // again.
  torch::autograd::variable_list gradients(const Call& call, const torch::autograd::variable_list& tangents,
                                           bool create_graph);

 private:
  // Tensors of one run: what the torch-level graph was called with, which may have been written to, and what it
  // returned.
  struct Run {
    torch::autograd::variable_list inputs, outputs;
    torch::autograd::edge_list starts;  // per differentiable input: where its history in this run begins
  };
  Run run(const Call& call);
  pybind11::object call_module(const pybind11::tuple& args, const Call& call);
  PyObject* module();
  at::Tensor source_of_tangent(const Run& run, uint32_t number) const;
  at::Tensor stand_in(uint32_t input, const Call& call) const;

  const graph::Graph& forward_;
  const trace::Gradients& gradients_;
  const std::vector<trace::OutputView>& views_;
  std::shared_ptr<const Constants> constants_;
  std::unique_ptr<RandomReplay> random_;
  bool draws_;
  Options options_;
  trace::Ambient outside_;
  std::unique_ptr<trace::TorchCalls> calls_;
  PyObject* module_ = nullptr;  // the torch-level graph, made when it is first asked for
};

}  // namespace braze::launch
