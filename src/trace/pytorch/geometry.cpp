// Operators that make a tensor a view of what it was, in place, and those that end its history so. Autograd makes the
// history of a view anew after each write to its memory: in eager by as_strided, which sees the memory alone, but of
// fakes (as of all functional tensors) by calling the operators again that gave the view, on what their base is by
// then. So a tensor that has views, or is one, may not change its geometry where gradients flow.
#include <ATen/FunctionalStorageImpl.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include "trace/graph_break.h"
#include "trace/pytorch/autograd_node.h"
#include "trace/pytorch/front_kernels.h"
#include "trace/recorder.h"

namespace braze::pytorch {
namespace {

// Whether another tensor counts writes with it: each view does with its base, for as long as it lives. So does what
// autograd keeps of it, whose gradient eager refuses after such a change anyway. What functionalisation holds as the
// content of the tensor may count with it, too.
bool is_shared(const at::Tensor& t) {
  namespace functional = at::functionalization;
  if (!trace::unwrap_fake(t) || t.is_inference() || !functional::impl::isFunctionalTensor(t)) return false;
  const at::Tensor& content = functional::impl::unsafeGetFunctionalWrapper(t)->value();
  auto* storage = dynamic_cast<functional::FunctionalStorageImpl*>(t.storage().unsafeGetStorageImpl());
  if (!storage) return true;
  const void* counter = version_counter(t);
  uint32_t own = 1;
  own += version_counter(content) == counter;
  own += !storage->base().is_same(content) && version_counter(storage->base()) == counter;
  return count_with(t) > own;
}

// A view that was made where gradients were off: eager refuses all that would give it a history.
bool is_without_grad(const at::Tensor& t) {
  using torch::autograd::CreationMeta;
  if (!t.is_view()) return false;
  const CreationMeta made = torch::autograd::impl::get_view_autograd_meta(t)->get_creation_meta();
  return made == CreationMeta::NO_GRAD_MODE || made == CreationMeta::INFERENCE_MODE;
}

void change_geometry(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const at::Tensor& self = torch::jit::peek(*stack, 0, op.schema().arguments().size()).toTensor();
  trace::Recorder* recorder = trace::Recorder::current();
  const bool differentiable = torch::autograd::isDifferentiableType(self.scalar_type());
  if (recorder && differentiable && is_shared(self) && !is_without_grad(self)) {
    if (self.requires_grad())
      trace::throw_graph_break(Reason::UnsupportedMutation,
                               "a tensor that requires a gradient changes its geometry, and has views or is one");
    // A write may give it a history yet.
    recorder->reshaped.push_back(self.is_view() ? at::Tensor(self._base()) : self);
  }
  op.redispatchBoxed(behind_front(keys), stack);
}

// Views made before keep the history that they had until the next write, and in eager require a gradient after it.
void end_history(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const at::Tensor& self = torch::jit::peek(*stack, 0, op.schema().arguments().size()).toTensor();
  if (trace::Recorder::current() && self.requires_grad() && is_shared(self))
    trace::throw_graph_break(Reason::UnsupportedMutation, "the history of a tensor that has views is ended in place");
  op.redispatchBoxed(behind_front(keys), stack);
}

}  // namespace

void install_geometry() {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", kFrontKey, __FILE__, __LINE__);
  for (const char* name :
       {"t_", "transpose_", "squeeze_", "squeeze_.dim", "squeeze_.dims", "unsqueeze_", "as_strided_"})
    library->impl(name, torch::CppFunction::makeFromBoxedFunction<&change_geometry>());
  library->impl("detach_", torch::CppFunction::makeFromBoxedFunction<&end_history>());
}

}  // namespace braze::pytorch
