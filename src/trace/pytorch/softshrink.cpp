// softshrink of 16-bit floats on the CPU: PyTorch's kernel takes lambda in float or, in later versions, in the dtype of
// the elements. Which one is found out by a call.
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/softshrink.h>
#include <ATen/ops/softshrink_ops.h>
#include <torch/library.h>

#include "trace/below_tracing.h"
#include "trace/pytorch/front_kernels.h"

namespace braze::pytorch {
namespace {

at::Scalar in_dtype(const at::Scalar& number, at::ScalarType dtype) {
  return dtype == at::kHalf ? at::Scalar(static_cast<float>(static_cast<c10::Half>(number.toFloat())))
                            : at::Scalar(static_cast<float>(static_cast<c10::BFloat16>(number.toFloat())));
}

// An element that is lambda once that is rounded, and more before.
bool rounds_lambda() {
  static const bool rounds = [] {
    trace::BelowTracing below;
    constexpr double kLambda = 0.3;  // 0.30004883 as half
    const at::Tensor rounded = at::scalar_tensor(in_dtype(kLambda, at::kHalf), at::TensorOptions(at::kHalf));
    return at::softshrink(rounded, kLambda).const_data_ptr<c10::Half>()[0] == 0;
  }();
  return rounds;
}

at::Tensor softshrink(c10::DispatchKeySet keys, const at::Tensor& x, const at::Scalar& lambda) {
  const bool rounded = trace::unwrap_fake(x) && x.device().is_cpu() &&
                       (x.scalar_type() == at::kHalf || x.scalar_type() == at::kBFloat16) && !lambda.isSymbolic() &&
                       rounds_lambda();
  return at::_ops::softshrink::redispatch(behind_front(keys), x, rounded ? in_dtype(lambda, x.scalar_type()) : lambda);
}

}  // namespace

void install_softshrink() {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", kFrontKey, __FILE__, __LINE__);
  library->impl("softshrink", TORCH_FN(softshrink));
}

}  // namespace braze::pytorch
