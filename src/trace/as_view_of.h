// Results on another tensor's memory in inference mode.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>

#include <optional>

namespace braze::trace {

// For the time in which a tensor on the memory of `base` is made: whatever the mode, it is an inference tensor where
// `base` is one, and none where it is none.
class AsViewOf {
 public:
  explicit AsViewOf(const at::Tensor& base) {
    if (c10::InferenceMode::is_enabled() != base.is_inference()) mode_.emplace(base.is_inference());
  }

 private:
  std::optional<c10::InferenceMode> mode_;
};

}  // namespace braze::trace
