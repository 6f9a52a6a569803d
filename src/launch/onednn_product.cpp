#include "launch/onednn_product.h"

#include <ATen/Context.h>

// Exported by the versions that we know, in no header. Weak: absent, there is another way.
namespace at::native {
__attribute__((weak)) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta,
                                         float alpha);
}

namespace braze::launch {

bool has_onednn_product() {
  return at::native::mkldnn_matmul && at::hasMKLDNN() && at::globalContext().userEnabledMkldnn();
}

void onednn_product(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, float beta) {
  at::native::mkldnn_matmul(a, b, out, beta, 1);
}

}  // namespace braze::launch
