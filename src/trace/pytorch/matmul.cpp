#include <torch/version.h>

#include "trace/pytorch/front_kernels.h"

#if TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR < 13
#include <ATen/ExpandUtils.h>
#include <ATen/ops/_unsafe_view.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/dot.h>
#include <ATen/ops/matmul_ops.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mv.h>
#include <torch/library.h>

#include "trace/fake_tensor.h"

namespace braze::pytorch {
namespace {

using Sizes = c10::SymDimVector;

bool is_symbolic(const at::Tensor& t) {
  if (!trace::unwrap_fake(t)) return false;
  for (const c10::SymInt& s : t.sym_sizes())
    if (s.is_heap_allocated()) return true;
  return false;
}

c10::SymInt product(c10::SymIntArrayRef sizes) {
  c10::SymInt p = 1;
  for (const c10::SymInt& s : sizes) p = p * s;
  return p;
}

// (..., m, k) by (k, n) or (k): one product of all rows.
at::Tensor rows_by_matrix(const at::Tensor& a, const at::Tensor& b) {
  c10::SymIntArrayRef sizes = a.sym_sizes();
  Sizes out(sizes.begin(), sizes.end() - 1);
  at::Tensor rows = a.reshape_symint({product(sizes.slice(0, sizes.size() - 1)), sizes.back()});
  if (b.dim() == 1) return at::_unsafe_view_symint(at::mv(rows, b), out);
  out.push_back(b.sym_size(1));
  return at::_unsafe_view_symint(at::mm(rows, b), out);
}

at::Tensor batches(const at::Tensor& a, const at::Tensor& b) {
  c10::SymIntArrayRef as = a.sym_sizes(), bs = b.sym_sizes();
  Sizes batch = at::infer_size_symdimvector(as.slice(0, as.size() - 2), bs.slice(0, bs.size() - 2));
  auto with = [&](const c10::SymInt& rows, const c10::SymInt& columns) {
    Sizes s = batch;
    s.push_back(rows);
    s.push_back(columns);
    return s;
  };
  c10::SymInt m = as[as.size() - 2], k = as.back(), l = bs[bs.size() - 2], n = bs.back(), count = product(batch);
  at::Tensor left = a.expand_symint(with(m, k)).reshape_symint({count, m, k});
  at::Tensor right = b.expand_symint(with(l, n)).reshape_symint({count, l, n});
  return at::_unsafe_view_symint(at::bmm(left, right), with(m, n));
}

at::Tensor matmul(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b) {
  int64_t m = a.dim(), n = b.dim();
  if (m == 0 || n == 0 || !(is_symbolic(a) || is_symbolic(b)))
    return at::_ops::matmul::redispatch(behind_front(keys), a, b);
  if (m == 1 && n == 1) return at::dot(a, b);
  if (m == 2 && n == 1) return at::mv(a, b);
  if (m == 1 && n == 2) return at::mm(a.unsqueeze(0), b).squeeze(0);
  if (m == 2 && n == 2) return at::mm(a, b);
  if (m >= 3 && n <= 2) return rows_by_matrix(a, b);
  if (m == 1) return rows_by_matrix(b.mT(), a);
  if (m == 2) return rows_by_matrix(b.mT(), a.t()).mT().contiguous();
  return batches(a, b);
}

}  // namespace

void install_symbolic_matmul() {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", kFrontKey, __FILE__, __LINE__);
  library->impl("matmul", TORCH_FN(matmul));
}

}  // namespace braze::pytorch

#else
namespace braze::pytorch {
void install_symbolic_matmul() {}
}  // namespace braze::pytorch
#endif
