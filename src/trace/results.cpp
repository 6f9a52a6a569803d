// What results need besides their values: to be leaves, to have no history left, to be tensors of the inference mode.
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/functions/utils.h>

#include "trace/autograd_node.h"
#include "trace/trace.h"

namespace braze::trace {

void make_leaf(PyObject* tensor) { THPVariable_Unpack(tensor).set_requires_grad(true); }

void mark_consumed(PyObject* tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  if (t.grad_fn()) return;
  torch::autograd::set_history(t, make_node<torch::autograd::Error>(
      "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
      "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
      "retain_graph=True if you need to backward through the graph a second time or if you need to access saved tensors after calling backward."));
}

struct InferenceScope::State {
  c10::InferenceMode mode{true};
};
InferenceScope::InferenceScope() : state_(std::make_unique<State>()) {}
InferenceScope::~InferenceScope() = default;

}  // namespace braze::trace
