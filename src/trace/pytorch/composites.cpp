// Operators that PyTorch takes apart into others, as reached by tensors of inference mode. Autograd's keys do that
// before functionalisation; a tensor that has none of them, or a mode that leaves them out, brings the operator to
// functionalisation whole, and that wraps the result anew: where the operator gives its operand or a view of it (its
// schema does not say so), what is written to one would not be seen in the other.
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "trace/pytorch/front_kernels.h"

namespace braze::pytorch {
namespace {

using c10::DispatchKey;

bool holds_inference(const c10::IValue& v) {
  if (v.isTensor()) return v.toTensor().defined() && v.toTensor().is_inference();
  if (!v.isTensorList() && !v.isOptionalTensorList()) return false;
  auto list = v.toListRef();
  return std::any_of(list.begin(), list.end(), holds_inference);
}

void take_apart(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  keys = behind_front(keys);
  // What comes before functionalisation (autocast, transforms, lazy bits) has its turn with the whole operator, and
  // calls it again.
  if (keys.highestPriorityTypeId() == DispatchKey::Functionalize) {
    auto operands = torch::jit::last(*stack, op.schema().arguments().size());
    if (c10::InferenceMode::is_enabled() || std::any_of(operands.begin(), operands.end(), holds_inference))
      return op.callBoxedForDispatchKey(DispatchKey::CompositeImplicitAutograd, *stack);
  }
  op.redispatchBoxed(keys, stack);
}

}  // namespace

void take_composites_apart() {
  static std::once_flag once;
  std::call_once(once, [] {
    auto& dispatcher = c10::Dispatcher::singleton();
    auto* handles = new std::vector<c10::RegistrationHandleRAII>();  // never undone, as the other front kernels
    for (const c10::OperatorName& name :
         dispatcher.getRegistrationsForDispatchKey(DispatchKey::CompositeImplicitAutograd)) {
      auto op = dispatcher.findSchema(name);
      // Those that say in their schema what they give functionalisation takes apart itself; one that a backend computes
      // is not taken apart in eager, either.
      if (!op || op->hasKernelForDispatchKey(DispatchKey::Functionalize) ||
          op->hasKernelForDispatchKey(DispatchKey::CPU) || op->hasKernelForDispatchKey(DispatchKey::CUDA) ||
          op->hasKernelForDispatchKey(kFrontKey))
        continue;
      handles->push_back(dispatcher.registerImpl(
          name, kFrontKey, c10::KernelFunction::makeFromBoxedFunction<&take_apart>(), std::nullopt, nullptr, "braze"));
    }
  });
}

}  // namespace braze::pytorch
