// Operators that tracing itself calls, on tensors that are not fakes.
#pragma once
#include <ATen/PythonTorchFunctionTLS.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "trace/fake_tensor.h"
#include "trace/pytorch/front_kernels.h"

namespace braze::trace {

// The modes that the user's program entered are not meant for library code.
class WithoutTorchFunction {
 public:
  WithoutTorchFunction() : saved_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
    at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  }
  ~WithoutTorchFunction() { at::impl::PythonTorchFunctionTLS::set_disabled_state(saved_); }
  WithoutTorchFunction(const WithoutTorchFunction&) = delete;
  WithoutTorchFunction& operator=(const WithoutTorchFunction&) = delete;

 private:
  at::impl::TorchFunctionDisabledState saved_;
};

// Operators that are called while it lives run on plain tensors.
struct BelowTracing {
  c10::impl::ExcludeDispatchKeyGuard keys{
      c10::DispatchKeySet({kFakeKey, pytorch::kFrontKey}) | c10::autograd_dispatch_keyset |
      c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView) | c10::DispatchKeySet(c10::DispatchKey::Functionalize)};
  WithoutTorchFunction modes;
};

}  // namespace braze::trace
