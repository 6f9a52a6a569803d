// What functionalisation makes of a write to a lazily conjugated or negated tensor: aten::copy, for which PyTorch would
// resolve the tensor first, so that what was written no longer lies on the memory that it is a view of.
#include <ATen/ops/copy_ops.h>
#include <torch/library.h>

#include "trace/fake_tensor.h"
#include "trace/pytorch/front_kernels.h"

namespace braze::pytorch {
namespace {

at::Tensor copy(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  keys = behind_front(keys);
  if (trace::as_fake(self))
    keys = keys - c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
  return at::_ops::copy::redispatch(keys, self, from, non_blocking);
}

}  // namespace

void install_copy() {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", kFrontKey, __FILE__, __LINE__);
  library->impl("copy", TORCH_FN(copy));
}

}  // namespace braze::pytorch
