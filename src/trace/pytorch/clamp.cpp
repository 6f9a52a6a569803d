// Integer bounds outside of the dtype of what they bound: from PyTorch 2.15 on an error where no value can keep them,
// before an error always. The kernels find it, which do not run on a tensor without memory.
#include <ATen/Dispatch_v2.h>
#include <ATen/ops/clamp_max_ops.h>
#include <ATen/ops/clamp_min_ops.h>
#include <ATen/ops/clamp_ops.h>
#include <c10/util/TypeSafeSignMath.h>
#include <torch/library.h>
#include <torch/version.h>

#include <limits>
#include <optional>

#include "trace/fake_tensor.h"
#include "trace/pytorch/front_kernels.h"

namespace braze::pytorch {
namespace {

using Bound = std::optional<at::Scalar>;

bool is_integer(const Bound& bound) { return !bound || bound->isIntegral(true); }

// Whether the kernel compares in the dtype of x, so that the bounds have to be of its range.
bool in_own_dtype(const at::Tensor& x, const Bound& min, const Bound& max) {
  return trace::unwrap_fake(x) && c10::isIntegralType(x.scalar_type(), false) && is_integer(min) && is_integer(max);
}

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15
// A bound that every value keeps becomes the nearest value of the dtype; one that none can keep is an error.
template <typename T>
Bound of_range(at::ScalarType dtype, const Bound& bound, bool lower) {
  using Limits = std::numeric_limits<T>;
  if (!bound || bound->isBoolean() || bound->isSymbolic()) return bound;
  const bool is_unsigned = bound->type() == at::kUInt64;  // above all of int64
  const bool below = !is_unsigned && c10::less_than_lowest<T>(bound->toLong());
  const bool above =
      is_unsigned ? c10::greater_than_max<T>(bound->toUInt64()) : c10::greater_than_max<T>(bound->toLong());
  TORCH_CHECK(lower ? !above : !below, "Clamp ", lower ? "min" : "max", " value ", bound->toDouble(),
              " is outside the representable range of ", dtype);
  if (below) return at::Scalar(Limits::lowest());
  if (above) return at::Scalar(Limits::max());
  return bound;
}
void to_range(const at::Tensor& x, Bound& min, Bound& max) {
  if (!in_own_dtype(x, min, max)) return;
  AT_DISPATCH_V2(x.scalar_type(), "clamp", AT_WRAP([&] {
                   min = of_range<scalar_t>(x.scalar_type(), min, true);
                   max = of_range<scalar_t>(x.scalar_type(), max, false);
                 }),
                 AT_EXPAND(AT_INTEGRAL_TYPES_V2));
}
#else
void to_range(const at::Tensor& x, Bound& min, Bound& max) {
  if (!in_own_dtype(x, min, max)) return;
  for (const Bound* bound : {&min, &max}) {
    if (!*bound || (*bound)->isBoolean() || (*bound)->isSymbolic()) continue;
    switch (x.scalar_type()) {
      case at::kByte: (*bound)->to<uint8_t>(); break;
      case at::kChar: (*bound)->to<int8_t>(); break;
      case at::kShort: (*bound)->to<int16_t>(); break;
      case at::kInt: (*bound)->to<int32_t>(); break;
      default: break;
    }
  }
}
#endif

template <typename Op, typename Result, typename X>
Result clamp_both(c10::DispatchKeySet keys, X x, const Bound& min, const Bound& max) {
  Bound low = min, high = max;
  to_range(x, low, high);
  return Op::redispatch(behind_front(keys), x, low, high);
}
template <typename Op, bool kLower, typename Result, typename X>
Result clamp_one(c10::DispatchKeySet keys, X x, const at::Scalar& bound) {
  Bound given = bound, none;
  to_range(x, kLower ? given : none, kLower ? none : given);
  return Op::redispatch(behind_front(keys), x, *given);
}

}  // namespace

void install_clamp() {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", kFrontKey, __FILE__, __LINE__);
  library->impl("clamp", TORCH_FN((clamp_both<at::_ops::clamp, at::Tensor, const at::Tensor&>)));
  library->impl("clamp_", TORCH_FN((clamp_both<at::_ops::clamp_, at::Tensor&, at::Tensor&>)));
  library->impl("clamp_min", TORCH_FN((clamp_one<at::_ops::clamp_min, true, at::Tensor, const at::Tensor&>)));
  library->impl("clamp_min_", TORCH_FN((clamp_one<at::_ops::clamp_min_, true, at::Tensor&, at::Tensor&>)));
  library->impl("clamp_max", TORCH_FN((clamp_one<at::_ops::clamp_max, false, at::Tensor, const at::Tensor&>)));
  library->impl("clamp_max_", TORCH_FN((clamp_one<at::_ops::clamp_max_, false, at::Tensor&, at::Tensor&>)));
}

}  // namespace braze::pytorch
