// oneDNN's matrix product, which PyTorch itself takes for half types alone, on float32.
#pragma once
#include <ATen/core/Tensor.h>

namespace braze::launch {

// Whether this PyTorch has it, and the user has not turned oneDNN off.
bool has_onednn_product();
// out = a b + beta out, of matrices or batches of them; strides as of any views. What it takes before it begins is 10
// us.
void onednn_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, float beta);

}  // namespace braze::launch
