// Backward by PyTorch's own autograd engine, run on fake tensors while a recorder notes the operators.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

#include "graph/graph.h"
#include "trace/fx.h"
#include "trace/gradients.h"
#include "trace/recorder.h"

namespace braze::trace {

using NodePtr = decltype(torch::autograd::Edge::function);

// The nodes of autograd's graph that a backward from there may come to.
std::vector<NodePtr> reached(const torch::autograd::edge_list& starts);

struct JointTrace {
  std::vector<uint32_t> tangents;         // per root: an input of the graph
  std::vector<graph::ValueId> gradients;  // per leaf; invalid where none reaches it
};

// `roots`: functional fakes with history; `leaves`: where gradients are asked for. Needs the GIL, which it gives up
// meanwhile. Throws Unsupported for what eager would raise in its backward, too.
JointTrace trace_backward(Recorder& recorder, const std::vector<at::Tensor>& roots,
                          const torch::autograd::edge_list& leaves);

// Waits, with the GIL given up, until no other thread is inside of trace_backward(): what calls it before a fork finds
// no lock, of PyTorch or ours, held by a trace that the child will never end. Needs the GIL. Goes on after 10 s: a
// trace may wait for what the caller holds.
void wait_for_traced_backwards();

// Gives a fake that stands for the result of a computation outside a history: as that one it is no leaf. Returns its
// edge.
torch::autograd::Edge set_outer_history(const at::Tensor& fake);

// The tracer's side of differentiate() and TrainingRunnable::keep_uncompiled().
class Differentiable {
 public:
  virtual ~Differentiable() = default;
  virtual Gradients differentiate(Captured& captured) = 0;
  // Forgets the real tensors; after this only Tracer::graph_module() may be called.
  virtual void forget_inputs() = 0;
  // The modes that graph_module() is to be called under: those of the capture.
  virtual Ambient outside() const = 0;
};
Differentiable& differentiable(Tracer& tracer);

}  // namespace braze::trace
