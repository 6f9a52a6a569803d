#include "trace/batch_norm.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/ops/_native_batch_norm_legit.h>
#include <ATen/ops/cudnn_batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_batch_norm.h>
#include <torch/library.h>

#include "trace/fake_tensor.h"

namespace braze::trace {
namespace {

namespace functional = at::functionalization::impl;
using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using MaybeTensor = std::optional<at::Tensor>;

at::Tensor inner(const at::Tensor& t) {
  if (!functional::isFunctionalTensor(t)) return t;
  functional::sync(t);
  return functional::from_functional_tensor(t);
}
MaybeTensor inner(const MaybeTensor& t) { return t ? MaybeTensor(inner(*t)) : t; }

Results native_norm(const at::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
                    const MaybeTensor& running_mean, const MaybeTensor& running_var, bool training, double momentum,
                    double eps) {
  bool writes = training && running_mean && running_mean->defined() && running_var && running_var->defined();
  if (writes && unwrap_fake(input) && functional::isFunctionalTensor(*running_mean) &&
      functional::isFunctionalTensor(*running_var)) {
    at::Tensor mean = *running_mean, var = *running_var;
    return at::_native_batch_norm_legit(input, weight, bias, mean, var, training, momentum, eps);
  }
  bool wrapped = functional::isFunctionalTensor(input);
  Results r;
  {
    at::AutoDispatchSkipFunctionalize below;
    r = at::native_batch_norm(inner(input), inner(weight), inner(bias), inner(running_mean), inner(running_var),
                              training, momentum, eps);
  }
  if (!wrapped) return r;
  auto wrap = [](const at::Tensor& t) { return functional::to_functional_tensor(t); };
  return {wrap(std::get<0>(r)), wrap(std::get<1>(r)), wrap(std::get<2>(r))};
}

// cuDNN's saved values are those of the native operator (mean and 1 / standard deviation), besides a reserve that only
// its own backward reads: the graph computes that itself.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> cudnn_norm(const at::Tensor& input, const at::Tensor& weight,
                                                                      const MaybeTensor& bias,
                                                                      const MaybeTensor& running_mean,
                                                                      const MaybeTensor& running_var, bool training,
                                                                      double momentum, double eps) {
  if (unwrap_fake(input)) {
    auto [y, mean, rstd] = native_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
    return {y, mean, rstd, at::empty({0}, input.options().dtype(at::kByte))};
  }
  at::AutoDispatchSkipFunctionalize below;
  auto [y, mean, rstd, reserve] = at::cudnn_batch_norm(inner(input), inner(weight), inner(bias), inner(running_mean),
                                                       inner(running_var), training, momentum, eps);
  if (!functional::isFunctionalTensor(input)) return {y, mean, rstd, reserve};
  auto wrap = [](const at::Tensor& t) { return functional::to_functional_tensor(t); };
  return {wrap(y), wrap(mean), wrap(rstd), wrap(reserve)};
}

}  // namespace

void install_batch_norm() {
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::Functionalize, __FILE__, __LINE__);
  static bool done = false;
  if (done) return;
  library->impl("native_batch_norm", TORCH_FN(native_norm));
  library->impl("cudnn_batch_norm", TORCH_FN(cudnn_norm));
  done = true;
}

}  // namespace braze::trace
