// What PyTorch takes apart by code that reads sizes as numbers, of fakes of open sizes: resampling (F.interpolate,
// aten::upsample_*.vec) and sampling at a grid, whose operators behind take symbols, and the cosine of vectors.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_upsample_bicubic2d_aa_ops.h>
#include <ATen/ops/_upsample_bilinear2d_aa_ops.h>
#include <ATen/ops/_upsample_nearest_exact1d_ops.h>
#include <ATen/ops/_upsample_nearest_exact2d_ops.h>
#include <ATen/ops/_upsample_nearest_exact3d_ops.h>
#include <ATen/ops/cosine_similarity_ops.h>
#include <ATen/ops/grid_sampler_2d.h>
#include <ATen/ops/grid_sampler_3d.h>
#include <ATen/ops/grid_sampler_ops.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/upsample_bicubic2d_ops.h>
#include <ATen/ops/upsample_bilinear2d_ops.h>
#include <ATen/ops/upsample_linear1d_ops.h>
#include <ATen/ops/upsample_nearest1d_ops.h>
#include <ATen/ops/upsample_nearest2d_ops.h>
#include <ATen/ops/upsample_nearest3d_ops.h>
#include <ATen/ops/upsample_trilinear3d_ops.h>
#include <torch/library.h>

#include <cmath>
#include <optional>
#include <utility>

#include "trace/fake_tensor.h"
#include "trace/pytorch/front_kernels.h"

namespace braze::pytorch {
namespace {

bool is_open(const at::Tensor& x) {
  if (!trace::unwrap_fake(x)) return false;
  for (const c10::SymInt& s : x.sym_sizes())
    if (s.is_heap_allocated()) return true;
  return false;
}

using Scales = std::optional<at::ArrayRef<double>>;
using SymSizes = c10::SmallVector<c10::SymInt, 3>;

// size * scale rounded down, as PyTorch computes it in double, for what is a fraction of powers of two, where nothing
// is rounded on the way: sizes are below 2^40. nullopt: another.
std::optional<c10::SymInt> scaled(const c10::SymInt& size, double scale) {
  constexpr double kMost = 1 << 12;
  double parts = 1;
  while (parts < kMost && scale * parts != std::floor(scale * parts)) parts *= 2;
  const double times = scale * parts;
  if (!(times > 0 && times < kMost) || times != std::floor(times)) return std::nullopt;
  c10::SymInt whole = size * c10::SymInt(static_cast<int64_t>(times));
  return parts == 1 ? whole : whole / c10::SymInt(static_cast<int64_t>(parts));
}

// The sizes of the result of a fake of open sizes; nullopt: PyTorch's own code finds them, or what is wrong.
std::optional<SymSizes> sizes_of(const at::Tensor& x, at::OptionalSymIntArrayRef given, const Scales& scales,
                                 size_t dims) {
  if (!trace::unwrap_fake(x) || x.dim() != static_cast<int64_t>(dims + 2) || given.has_value() == scales.has_value())
    return std::nullopt;
  bool open = is_open(x);
  if (given)
    for (const c10::SymInt& s : *given) open = open || s.is_heap_allocated();
  if (!open || (given ? given->size() : scales->size()) != dims) return std::nullopt;
  SymSizes out;
  for (size_t d = 0; d < dims; ++d) {
    auto size = given ? std::optional((*given)[d]) : scaled(x.sym_size(static_cast<int64_t>(d + 2)), (*scales)[d]);
    if (!size) return std::nullopt;
    out.push_back(std::move(*size));
  }
  return out;
}

std::optional<double> scale(const Scales& scales, size_t d) {
  return scales ? std::optional((*scales)[d]) : std::nullopt;
}

// Of so many dimensions (kDim), with align_corners or without.
template <class Given, class Plain, class Dims, class... Align>
struct Resampling;
template <class Given, class Plain, size_t... kDim, class... Align>
struct Resampling<Given, Plain, std::index_sequence<kDim...>, Align...> {
  static at::Tensor run(c10::DispatchKeySet keys, const at::Tensor& x, at::OptionalSymIntArrayRef given, Align... align,
                        Scales scales) {
    auto sizes = sizes_of(x, given, scales, sizeof...(kDim));
    if (!sizes) return Given::redispatch(behind_front(keys), x, given, align..., scales);
    return Plain::call(x, *sizes, align..., scale(scales, kDim)...);
  }
};

// A GPU may have it by a library of its own, which PyTorch chooses; the kernel checks the sizes.
at::Tensor grid_sampler(c10::DispatchKeySet keys, const at::Tensor& x, const at::Tensor& grid, int64_t interpolation,
                        int64_t padding, bool align) {
  const bool own = x.device().is_cpu() && (is_open(x) || is_open(grid)) && x.dim() == grid.dim();
  if (own && x.dim() == 4) return at::grid_sampler_2d(x, grid, interpolation, padding, align);
  if (own && x.dim() == 5) return at::grid_sampler_3d(x, grid, interpolation, padding, align);
  return at::_ops::grid_sampler::redispatch(behind_front(keys), x, grid, interpolation, padding, align);
}

// Of float vectors that need no broadcasting. The lengths are bounded where gradients don't see it, as PyTorch does.
at::Tensor cosine_similarity(c10::DispatchKeySet keys, const at::Tensor& a, const at::Tensor& b, int64_t dim,
                             double eps) {
  bool own = (is_open(a) || is_open(b)) && a.dim() == b.dim() && a.scalar_type() == b.scalar_type() &&
             at::isFloatingType(a.scalar_type()) && a.device() == b.device();
  for (int64_t d = 0; own && d < a.dim(); ++d)
    own = a.sym_size(d).sym_eq(b.sym_size(d)).guard_or_false(__FILE__, __LINE__);
  if (!own) return at::_ops::cosine_similarity::redispatch(behind_front(keys), a, b, dim, eps);
  auto length = [&](const at::Tensor& x) {
    at::Tensor n = at::linalg_vector_norm(x, 2, dim, true).clone();
    at::NoGradGuard none;
    n.clamp_min_(eps);
    return n;
  };
  at::Tensor of_a = length(a), of_b = length(b);
  return ((a / of_a) * (b / of_b)).sum(dim);
}

}  // namespace

void install_open_sizes() {
  auto* library = new torch::Library(torch::Library::IMPL, "aten", kFrontKey, __FILE__, __LINE__);
#define BRAZE_RESAMPLING(name, ...) \
  library->impl(#name ".vec", TORCH_FN((Resampling<at::_ops::name##_vec, at::_ops::name, __VA_ARGS__>::run)))
  BRAZE_RESAMPLING(upsample_nearest1d, std::make_index_sequence<1>);
  BRAZE_RESAMPLING(upsample_nearest2d, std::make_index_sequence<2>);
  BRAZE_RESAMPLING(upsample_nearest3d, std::make_index_sequence<3>);
  BRAZE_RESAMPLING(_upsample_nearest_exact1d, std::make_index_sequence<1>);
  BRAZE_RESAMPLING(_upsample_nearest_exact2d, std::make_index_sequence<2>);
  BRAZE_RESAMPLING(_upsample_nearest_exact3d, std::make_index_sequence<3>);
  BRAZE_RESAMPLING(upsample_linear1d, std::make_index_sequence<1>, bool);
  BRAZE_RESAMPLING(upsample_bilinear2d, std::make_index_sequence<2>, bool);
  BRAZE_RESAMPLING(upsample_trilinear3d, std::make_index_sequence<3>, bool);
  BRAZE_RESAMPLING(upsample_bicubic2d, std::make_index_sequence<2>, bool);
  BRAZE_RESAMPLING(_upsample_bilinear2d_aa, std::make_index_sequence<2>, bool);
  BRAZE_RESAMPLING(_upsample_bicubic2d_aa, std::make_index_sequence<2>, bool);
#undef BRAZE_RESAMPLING
  library->impl("grid_sampler", TORCH_FN(grid_sampler));
  library->impl("cosine_similarity", TORCH_FN(cosine_similarity));
}

}  // namespace braze::pytorch
