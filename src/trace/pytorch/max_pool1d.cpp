// max_pool1d on the CPU where no gradient is asked for: PyTorch's kernel takes floats alone and makes what it reads
// contiguous, while the operator that tracing sees takes integers too and keeps how its operand lies.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/max_pool1d_ops.h>
#include <torch/library.h>

#include "trace/below_tracing.h"
#include "trace/pytorch/dual_number.h"
#include "trace/pytorch/front_kernels.h"

namespace braze::pytorch {
namespace {

at::Tensor max_pool1d(c10::DispatchKeySet keys, const at::Tensor& x, at::IntArrayRef kernel, at::IntArrayRef stride,
                      at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode) {
  const bool own_kernel = trace::unwrap_fake(x) && x.device().is_cpu() &&
                          !(x.requires_grad() && at::GradMode::is_enabled()) && !has_tangent(x.unsafeGetTensorImpl());
  at::Tensor out = at::_ops::max_pool1d::redispatch(behind_front(keys), own_kernel ? x.contiguous() : x, kernel, stride,
                                                    padding, dilation, ceil_mode);
  TORCH_CHECK_NOT_IMPLEMENTED(!own_kernel || at::isFloatingType(x.scalar_type()),
                              "\"max_pool1d_impl\" not implemented for '", c10::toString(x.scalar_type()), "'");
  return out;
}

}  // namespace

void install_max_pool1d() {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", kFrontKey, __FILE__, __LINE__);
  library->impl("max_pool1d", TORCH_FN(max_pool1d));
}

}  // namespace braze::pytorch
