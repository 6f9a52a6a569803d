// Tensors that carry a tangent of torch.autograd.forward_ad: compiled code would lose it.
#pragma once
#include <torch/csrc/autograd/forward_grad.h>
#include <torch/csrc/autograd/variable.h>

namespace braze::pytorch {

inline bool has_tangent(const c10::TensorImpl* impl) {
  auto* meta = static_cast<torch::autograd::AutogradMeta*>(impl->autograd_meta());
  return meta && meta->fw_grad_ && !meta->fw_grad_->empty();
}

}  // namespace braze::pytorch
