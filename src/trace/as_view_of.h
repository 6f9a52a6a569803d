// Results on another tensor's memory in inference mode.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>

#include <optional>

namespace braze::trace {

// For the time in which a tensor on the memory of `base` is made: of a plain tensor it is plain, also in inference
// mode.
class AsViewOf {
 public:
  explicit AsViewOf(const at::Tensor& base) {
    if (c10::InferenceMode::is_enabled() && !base.is_inference()) plain_.emplace(false);
  }

 private:
  std::optional<c10::InferenceMode> plain_;
};

}  // namespace braze::trace
