// Functions of attention's scores, cut out of what was recorded.
#include "graph/score_graph.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <unordered_set>

#include "base/check.h"
#include "trace/below_tracing.h"
#include "trace/fake_tensor.h"
#include "trace/tracer_impl.h"

namespace braze::trace {
namespace {

// Whether gradients of `result` flow to a tensor other than `score`.
bool has_other_leaf(const at::Tensor& result, const at::Tensor& score) {
  if (!result.requires_grad() || result.is_same(score)) return false;
  std::vector<const torch::autograd::Node*> open{result.grad_fn().get()};
  if (!open[0]) return true;  // a captured tensor itself
  std::unordered_set<const torch::autograd::Node*> seen;
  const torch::autograd::Node* own =
      score.requires_grad() ? torch::autograd::impl::gradient_edge(score).function.get() : nullptr;
  while (!open.empty()) {
    const torch::autograd::Node* n = open.back();
    open.pop_back();
    if (n == own || !seen.insert(n).second) continue;
    if (n->num_outputs() == 0) return true;  // where the gradient of another leaf is kept
    for (const torch::autograd::Edge& e : n->next_edges())
      if (e.is_valid()) open.push_back(e.function.get());
  }
  return false;
}

}  // namespace

PyObject* TracerImpl::score_graph(const std::vector<PyObject*>& inputs, const std::vector<PyObject*>& outputs) {
  namespace functional = at::functionalization::impl;
  torch_level_ = false;
  auto value = [&](PyObject* o) -> graph::ValueId {
    if (o == Py_None) return {};
    const at::Tensor& t = THPVariable_Unpack(o);
    if (functional::isFunctionalTensor(t)) functional::sync(t);
    FakeTensor* fake = unwrap_fake(t);
    return fake ? recorder_->value_of(*fake) : recorder_->constant(t);
  };
  std::vector<graph::ValueId> from, to;
  for (PyObject* o : inputs) from.push_back(value(o));
  for (PyObject* o : outputs) to.push_back(value(o));
  if (outputs[graph::kScored] != Py_None &&
      has_other_leaf(THPVariable_Unpack(outputs[graph::kScored]), THPVariable_Unpack(inputs[graph::kScore])))
    throw Unsupported(Reason::UnsupportedFeature, "gradients of tensors that a score_mod captured");

  graph::ScoreGraph cut = graph::cut_score_graph(recorder_->graph(), from, to, [&](graph::ValueId v) {
    const at::Tensor* known = recorder_->known(v);
    if (!known || known->numel() != 1 || known->is_complex()) return std::optional<double>();
    BelowTracing below;
    return std::optional(known->item().toDouble());
  });
  pybind11::list operands;
  for (graph::ValueId v : cut.operands) {
    RecordingScope scope(recorder_.get());
    const TensorType& type = recorder_->graph().type(v);
    at::Tensor fake = make_fake(recorder_, v, FakeTensor::kNoSlot, type);
    operands.append(pybind11::reinterpret_steal<pybind11::object>(
        THPVariable_Wrap(functional::to_functional_tensor(std::move(fake)))));
  }
  return pybind11::make_tuple(graph::print(cut.graph), operands).release().ptr();
}

}  // namespace braze::trace
