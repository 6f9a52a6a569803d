// Views of fakes for which functionalisation has no exact way to put back what was written to them, and what PyTorch
// pads in a circle.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_pad_circular.h>
#include <ATen/ops/_pad_circular_ops.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/expand_ops.h>
#include <ATen/ops/unbind_ops.h>
#include <c10/core/WrapDimMinimal.h>
#include <torch/library.h>

#include "trace/fake_tensor.h"
#include "trace/pytorch/front_kernels.h"

namespace braze::pytorch {
namespace {

// It reads sizes and strides as numbers. Selects give the same views.
std::vector<at::Tensor> unbind(c10::DispatchKeySet keys, const at::Tensor& self, int64_t dim) {
  bool open = false;
  if (trace::unwrap_fake(self))
    for (c10::SymIntArrayRef numbers : {self.sym_sizes(), self.sym_strides()})
      for (const c10::SymInt& s : numbers) open = open || s.is_heap_allocated();
  // Where there are gradients eager refuses such writes, and so does autograd by the operator's own name.
  if (!open || self.dim() == 0 || (self.requires_grad() && at::GradMode::is_enabled()))
    return at::_ops::unbind_int::redispatch(behind_front(keys), self, dim);
  dim = c10::maybe_wrap_dim(dim, self.dim());
  std::vector<at::Tensor> parts;
  for (int64_t i = 0, n = self.sym_size(dim).guard_int(__FILE__, __LINE__); i < n; ++i)
    parts.push_back(self.select_symint(dim, i));
  return parts;
}

// Whether the tensor has these sizes already, but for dimensions of size 1 that come in front.
bool keeps_sizes(const at::Tensor& self, c10::SymIntArrayRef sizes) {
  const size_t rank = static_cast<size_t>(self.dim());
  if (sizes.size() < rank) return false;
  const size_t front = sizes.size() - rank;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (d >= front && !sizes[d].is_heap_allocated() && sizes[d] == -1) continue;
    c10::SymInt own = d < front ? c10::SymInt(1) : self.sym_size(static_cast<int64_t>(d - front));
    // A size of 1 that is expanded to an open one stays expanded.
    bool is_one = !own.is_heap_allocated() && own == 1;
    if (is_one ? sizes[d].is_heap_allocated() || sizes[d] != 1
               : !own.sym_eq(sizes[d]).guard_or_false(__FILE__, __LINE__))
      return false;
  }
  return true;
}

// It adds the difference of what was there and what is, which rounds, and subtracts infinities. What is written to a
// tensor that was expanded in truth is refused by eager, but for some fills.
at::Tensor expand(c10::DispatchKeySet keys, const at::Tensor& self, c10::SymIntArrayRef sizes, bool implicit) {
  // The strides of an expanded number are 0, whatever its sizes: gradients that have them are copied.
  if (!trace::unwrap_fake(self) || !keeps_sizes(self, sizes) || (!self.dim() && !sizes.empty()))
    return at::_ops::expand::redispatch(behind_front(keys), self, sizes, implicit);
  at::Tensor out = at::alias(self);
  while (out.dim() < static_cast<int64_t>(sizes.size())) out = out.unsqueeze(0);
  return out;
}

// Without a batch it reads sizes behind the last, which as symbols are pointers.
at::Tensor pad_circular(c10::DispatchKeySet keys, const at::Tensor& self, c10::SymIntArrayRef pad) {
  if (!trace::unwrap_fake(self) || self.dim() != static_cast<int64_t>(pad.size() / 2 + 1))
    return at::_ops::_pad_circular::redispatch(behind_front(keys), self, pad);
  return at::_pad_circular_symint(self.unsqueeze(0), pad).squeeze(0);
}

}  // namespace

void install_views() {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", kFrontKey, __FILE__, __LINE__);
  library->impl("unbind.int", TORCH_FN(unbind));
  library->impl("expand", TORCH_FN(expand));
  library->impl("_pad_circular", TORCH_FN(pad_circular));
}

}  // namespace braze::pytorch
