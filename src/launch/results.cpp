// What results need besides their values: to be leaves, to have no history left, to be tensors of the inference mode,
// to be views.
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/alias.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <optional>

#include "base/check.h"
#include "launch/internal_failure.h"
#include "launch/launch.h"
#include "launch/runnable.h"
#include "trace/as_view_of.h"
#include "trace/convert.h"
#include "trace/pytorch/autograd_node.h"

namespace braze::launch {

void make_leaf(PyObject* tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  if (t.requires_grad()) return;
  c10::InferenceMode mode(t.is_inference());  // outside of it, tensors of the inference mode take none
  t.set_requires_grad(true);
}

void set_lazy(CompiledGraph::Call& call, const std::vector<trace::LazyBits>& lazy) {
  for (size_t i = 0; i < lazy.size(); ++i) {
    if (!lazy[i].any()) continue;
    at::Tensor& result = call.results[i];
    at::Tensor plain = result;  // which may be another result, too
    trace::AsViewOf kind(plain);
    result = pytorch::without_history(plain);
    trace::set_lazy_bits(result, lazy[i]);
    for (size_t j = i + 1; j < lazy.size(); ++j)
      if (lazy[j] == lazy[i] && call.results[j].is_same(plain)) call.results[j] = result;
  }
}

void make_views(CompiledGraph::Call& call, const std::vector<trace::OutputView>& views,
                const std::vector<trace::LazyBits>& lazy) {
  using Made = trace::OutputView::Made;
  for (const trace::OutputView& v : views) {
    const at::Tensor& base = v.of_input ? *call.inputs[v.base] : call.results[v.base];
    at::Tensor& result = call.results[v.output];
    if (v.made == Made::WithVersionOf) {
      if (!result.defined() || result.is_inference()) continue;
      if (!result.is_view()) result = pytorch::without_history(result);
      result.unsafeGetTensorImpl()->set_version_counter(
          v.base == v.output ? c10::VariableVersion(0) : base.unsafeGetTensorImpl()->version_counter());
      continue;
    }
    if (!result.is_alias_of(base)) raise_internal_failure(InternalError("an output is not on the memory of its base"));
    if (v.made == Made::Apart) {
      trace::AsViewOf kind(base);
      result = pytorch::without_history(base);
      trace::set_lazy_bits(result, lazy[v.output]);
      continue;
    }
    std::optional<c10::InferenceMode> inference;
    if (v.made == Made::ForInference) inference.emplace();
    c10::AutoGradMode grad(v.made == Made::Plainly || v.made == Made::AsOneOfSeveral);
    bool whole = base.sizes() == result.sizes() && base.strides() == result.strides() &&
                 base.storage_offset() == result.storage_offset();
    const trace::LazyBits bits = trace::lazy_bits(base), seen = lazy[v.output];
    if (!whole)
      result = base.as_strided(result.sizes(), result.strides(), result.storage_offset());
    else
      result = bits == seen ? at::alias(base) : base;
    if (bits.conj != seen.conj) result = at::_conj(result);
    if (bits.neg != seen.neg) result = at::_neg_view(result);
    auto* meta = v.made == Made::AsOneOfSeveral && result.is_view()
                     ? torch::autograd::impl::get_view_autograd_meta(result)
                     : nullptr;
    if (meta) meta->set_creation_meta(torch::autograd::CreationMeta::MULTI_OUTPUT_NODE);
  }
}

void mark_consumed(PyObject* tensor) {
  const at::Tensor& t = THPVariable_Unpack(tensor);
  if (t.grad_fn()) return;
  torch::autograd::set_history(
      t, pytorch::make_node<torch::autograd::Error>(
             "Trying to backward through the graph a second time (or directly access saved tensors after they have "
             "already been freed). "
             "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify "
             "retain_graph=True if you need to backward through the graph a second time or if you need to access saved "
             "tensors after calling backward."));
}

struct InferenceScope::State {
  c10::InferenceMode mode{true};
};
InferenceScope::InferenceScope() : state_(std::make_unique<State>()) {}
InferenceScope::~InferenceScope() = default;

}  // namespace braze::launch
