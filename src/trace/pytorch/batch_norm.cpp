#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ops/_native_batch_norm_legit.h>
#include <ATen/ops/cudnn_batch_norm_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <torch/library.h>

#include <optional>
#include <tuple>

#include "trace/fake_tensor.h"
#include "trace/pytorch/front_kernels.h"

namespace braze::pytorch {
namespace {

using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using MaybeTensor = std::optional<at::Tensor>;

bool is_written(const MaybeTensor& statistics) {
  return statistics && statistics->defined() && at::functionalization::impl::isFunctionalTensor(*statistics);
}

Results native_norm(c10::DispatchKeySet keys, const at::Tensor& input, const MaybeTensor& weight,
                    const MaybeTensor& bias, const MaybeTensor& running_mean, const MaybeTensor& running_var,
                    bool training, double momentum, double eps) {
  if (training && trace::unwrap_fake(input) && is_written(running_mean) && is_written(running_var)) {
    at::Tensor mean = *running_mean, var = *running_var;
    return at::_native_batch_norm_legit(input, weight, bias, mean, var, training, momentum, eps);
  }
  return at::_ops::native_batch_norm::redispatch(behind_front(keys), input, weight, bias, running_mean, running_var,
                                                 training, momentum, eps);
}

// cuDNN's results are those of the native operator (its saved values are mean and 1 / standard deviation), besides a
// reserve that only its own backward reads: the graph computes that itself.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> cudnn_norm(c10::DispatchKeySet keys, const at::Tensor& input,
                                                                      const at::Tensor& weight, const MaybeTensor& bias,
                                                                      const MaybeTensor& running_mean,
                                                                      const MaybeTensor& running_var, bool training,
                                                                      double momentum, double eps) {
  if (trace::unwrap_fake(input)) {
    auto [y, mean, rstd] = native_norm(keys, input, weight, bias, running_mean, running_var, training, momentum, eps);
    return {y, mean, rstd, at::empty({0}, input.options().dtype(at::kByte))};
  }
  return at::_ops::cudnn_batch_norm::redispatch(behind_front(keys), input, weight, bias, running_mean, running_var,
                                                training, momentum, eps);
}

}  // namespace

void install_batch_norm() {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", kFrontKey, __FILE__, __LINE__);
  library->impl("native_batch_norm", TORCH_FN(native_norm));
  library->impl("cudnn_batch_norm", TORCH_FN(cudnn_norm));
}

}  // namespace braze::pytorch
