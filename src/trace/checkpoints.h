// Regions of torch.utils.checkpoint in what is recorded.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <Python.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

#include "graph/graph.h"

namespace braze::trace {

class Checkpoints {
 public:
  // What is recorded until the end is computed again for the backward; `selective`: by a policy, which asks for
  // calls(). `held`: tensors that the program's own checkpoint keeps. False, and nothing is to be ended: gradients are
  // off, or another region is open, of which this is a part.
  bool begin(std::vector<at::Tensor> held, bool selective);
  void end();
  // Of a node that is recorded now, in the backward of a region, too.
  graph::Checkpoint current() const;

  // A call of an operator in the selective region, and the nodes that it added.
  struct Call {
    c10::OperatorHandle op;
    std::vector<c10::IValue> args, results;
    size_t first_node, end_node;
  };
  bool notes_calls() const { return open_ && selective_; }
  void note(Call call) { calls_.push_back(std::move(call)); }
  // Of the last region.
  const std::vector<Call>& calls() const { return calls_; }
  const std::vector<at::Tensor>& held() const { return held_; }  // of all regions

 private:
  struct Region {
    uint64_t first, end;  // of the numbers that autograd gave to its nodes
  };
  std::vector<Region> regions_;
  std::vector<at::Tensor> held_;
  std::vector<Call> calls_;
  decltype(torch::autograd::get_current_node()) around_;  // the capture runs in the backward of this
  bool open_ = false, selective_ = false;
};

// (op, args, kwargs, results), as a mode of PyTorch's dispatcher is given them. New reference; nullptr: a Python
// exception is set.
PyObject* call_to_python(const Checkpoints::Call& call);

}  // namespace braze::trace
