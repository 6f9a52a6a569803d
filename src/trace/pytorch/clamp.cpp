// Bounds of integers that their dtype does not hold: from PyTorch 2.15 on they are never reached, or an error; before,
// each is an error of the kernel, which a tensor without memory does not run.
#include <ATen/Dispatch_v2.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <torch/library.h>
#include <torch/version.h>

#include <limits>
#include <optional>

#include "trace/fake_tensor.h"
#include "trace/pytorch/front_kernels.h"

namespace braze::pytorch {
namespace {

using Bound = std::optional<at::Scalar>;

bool applies(const at::Tensor& x, const Bound& bound) {
  return bound && !bound->isSymbolic() && bound->isIntegral(false) && trace::unwrap_fake(x) &&
         c10::isIntegralType(x.scalar_type(), false);
}

// The bound as the kernel takes it.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
Bound within(const at::Tensor& x, const Bound& bound, bool lower) {
  if (!applies(x, bound)) return bound;
  return AT_DISPATCH_V2(x.scalar_type(), "clamp", AT_WRAP([&]() -> Bound {
                          using Limits = std::numeric_limits<scalar_t>;
                          if (bound->type() == at::kUInt64) return bound;
                          const int64_t n = bound->toLong();
                          if (lower && n < static_cast<int64_t>(Limits::min())) return at::Scalar(Limits::min());
                          if (!lower && sizeof(scalar_t) < 8 && n > static_cast<int64_t>(Limits::max()))
                            return at::Scalar(Limits::max());
                          return bound;
                        }),
                        AT_EXPAND(AT_INTEGRAL_TYPES_V2));
}
#else
Bound within(const at::Tensor& x, const Bound& bound, bool) {
  if (!applies(x, bound)) return bound;
  switch (x.scalar_type()) {
    case at::kByte: bound->to<uint8_t>(); break;
    case at::kChar: bound->to<int8_t>(); break;
    case at::kShort: bound->to<int16_t>(); break;
    case at::kInt: bound->to<int32_t>(); break;
    default: break;
  }
  return bound;
}
#endif

at::Tensor clamp(c10::DispatchKeySet keys, const at::Tensor& x, const Bound& min, const Bound& max) {
  return at::_ops::clamp::redispatch(behind_front(keys), x, within(x, min, true), within(x, max, false));
}
at::Tensor& clamp_(c10::DispatchKeySet keys, at::Tensor& x, const Bound& min, const Bound& max) {
  return at::_ops::clamp_::redispatch(behind_front(keys), x, within(x, min, true), within(x, max, false));
}
at::Tensor clamp_min(c10::DispatchKeySet keys, const at::Tensor& x, const at::Scalar& bound) {
  return at::_ops::clamp_min::redispatch(behind_front(keys), x, *within(x, bound, true));
}
at::Tensor& clamp_min_(c10::DispatchKeySet keys, at::Tensor& x, const at::Scalar& bound) {
  return at::_ops::clamp_min_::redispatch(behind_front(keys), x, *within(x, bound, true));
}
at::Tensor clamp_max(c10::DispatchKeySet keys, const at::Tensor& x, const at::Scalar& bound) {
  return at::_ops::clamp_max::redispatch(behind_front(keys), x, *within(x, bound, false));
}
at::Tensor& clamp_max_(c10::DispatchKeySet keys, at::Tensor& x, const at::Scalar& bound) {
  return at::_ops::clamp_max_::redispatch(behind_front(keys), x, *within(x, bound, false));
}

}  // namespace

void install_clamp() {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", kFrontKey, __FILE__, __LINE__);
  library->impl("clamp", TORCH_FN(clamp));
  library->impl("clamp_", TORCH_FN(clamp_));
  library->impl("clamp_min", TORCH_FN(clamp_min));
  library->impl("clamp_min_", TORCH_FN(clamp_min_));
  library->impl("clamp_max", TORCH_FN(clamp_max));
  library->impl("clamp_max_", TORCH_FN(clamp_max_));
}

}  // namespace braze::pytorch
