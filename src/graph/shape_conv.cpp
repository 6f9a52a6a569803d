// Convolutions and windows: output sizes by formula, the layout of the operands kept.
#include <algorithm>

#include "base/cpu.h"
#include "graph/shape_rules.h"

namespace braze::graph {
namespace {

std::optional<int64_t> at(const std::vector<int64_t>& v, size_t d) {  // a list of one stands for all dimensions
  if (v.empty()) return std::nullopt;
  return v.size() == 1 ? v[0] : d < v.size() ? std::optional(v[d]) : std::nullopt;
}

// Whether the library computes it, which takes bfloat16 only with AVX-512 and f16 only where the CPU computes in it.
bool of_library(DType d) {
  return d == DType::F32 || (d == DType::BF16 && includes(host_cpu(), CpuLevel::Avx512)) ||
         (d == DType::F16 && host_has_halves());
}

// How the result of groups lies on the CPU that one of no groups would give `format`; of `sizes`, filters `w`. Kernels
// outside the library compute groups one by one and put these together, where planes of one element in groups of one
// channel count as contiguous. To them the library leaves filters of one element in small batches where there is one
// thread: that is not known here.
std::optional<int8_t> format_of_groups(const Call& c, const TensorType& w, const Sizes& sizes, int64_t groups,
                                       int8_t format) {
  if (groups == 1) return format;
  sym::ExprArena& arena = c.arena();
  TensorType group = c.fresh(w, w.dtype, sizes);
  group.sizes[1] = arena.floordiv(group.sizes[1], arena.constant(groups));
  group.strides = format_strides(arena, group.sizes, format);
  const int8_t apart = suggested_format(c, group).value_or(format);
  if (apart == format || !of_library(w.dtype)) return apart;
  const bool may_be_left =
      w.dtype == DType::F32 && arena.range(sizes[0]).lo < 16 &&
      std::all_of(w.sizes.begin() + 2, w.sizes.end(), [&](Expr n) { return arena.is_const(n, 1); });
  return may_be_left ? std::nullopt : std::optional(format);
}

// Three dimensions on the CPU, which eager sees as planes of one row, of the operand made contiguous: the result lies
// as that of the planes. These may count as channels-last where a size is 1.
Types along_a_line(const Call& c, const TensorType& x, const TensorType& w, int64_t groups, Sizes sizes) {
  sym::ExprArena& arena = c.arena();
  bool last = false;
  for (const TensorType* t : {&x, &w}) {
    TensorType plane = *t;
    if (t == &x && !is_contiguous(arena, x)) plane.strides = contiguous_strides(arena, x.sizes);
    plane.strides.insert(plane.strides.begin() + 2, arena.mul(plane.sizes[2], plane.strides[2]));
    plane.sizes.insert(plane.sizes.begin() + 2, arena.constant(1));
    auto format = suggested_format(c, plane);
    // A size that only the run knows is not taken for 1.
    const bool open = std::ranges::any_of(t->sizes, [&](Expr s) { return arena.depends_on_data(s); });
    if (!format && !(open && is_contiguous(arena, x) && is_contiguous(arena, w))) return std::nullopt;
    last = last || format.value_or(0);
  }
  TensorType t = c.fresh(x, x.dtype, std::move(sizes));
  if (last) {
    Sizes plane = t.sizes;
    plane.insert(plane.begin() + 2, arena.constant(1));
    auto format = format_of_groups(c, w, plane, groups, 2);
    if (!format) return std::nullopt;
    t.strides = format_strides(arena, plane, *format);
    t.strides.erase(t.strides.begin() + 2);
  }
  return one(std::move(t));
}

// Whether an operand may ask for a layout of the result, which the Meta kernel does not know about.
bool may_be_channels_last(const Call& c, const TensorType& t) {
  if (t.dim() == 3) return !is_contiguous(c.arena(), t);
  auto format = suggested_format(c, t);
  return !format || *format;
}

Types convolution(const Call& c) {
  const TensorType *x = c.tensor(0), *w = c.tensor(1);
  if (!x || !w || x->dim() < 3 || w->dim() != x->dim()) return std::nullopt;
  std::optional<bool> last;
  auto integers = [&](size_t i) {
    auto known = c.integers(i);
    if (known || (!c.get<IntList>(i) && !c.get<Expr>(i))) return known;
    if (!last) last = may_be_channels_last(c, *x) || may_be_channels_last(c, *w);
    return *last ? c.specialised(i) : known;
  };
  auto stride = integers(3), padding = integers(4), dilation = integers(5), extra = integers(7);
  std::optional<int64_t> groups = c.integer(8);
  if (!groups)
    if (auto number = integers(8)) groups = number->at(0);
  if (!stride || !padding || !dilation || !extra || !groups) return std::nullopt;
  if (x->dtype != w->dtype || x->device != w->device || !is_floating(x->dtype)) return std::nullopt;
  sym::ExprArena& arena = c.arena();
  auto k = [&](int64_t v) { return arena.constant(v); };
  bool transposed = c.flag(6);
  Expr channels = transposed ? w->sizes[0] : arena.mul(w->sizes[1], k(*groups));
  if (!c.surely_equal(x->sizes[1], channels)) return std::nullopt;
  if (c.less(k(0), channels) != true)
    return std::nullopt;  // of no channels there is nothing in any, whatever the weight
  Sizes sizes{x->sizes[0], transposed ? arena.mul(w->sizes[1], k(*groups)) : w->sizes[0]};
  for (size_t d = 2; d < x->dim(); ++d) {
    auto s = at(*stride, d - 2), p = at(*padding, d - 2), l = at(*dilation, d - 2);
    if (!s || !p || !l || *s < 1) return std::nullopt;
    Expr reach = arena.mul(k(*l), arena.sub(w->sizes[d], k(1)));
    Expr n;
    if (transposed) {
      auto e = at(*extra, d - 2);
      if (!e) return std::nullopt;
      n = arena.add(arena.sub(arena.mul(arena.sub(x->sizes[d], k(1)), k(*s)), k(2 * *p)), arena.add(reach, k(*e + 1)));
    } else {
      n = arena.add(arena.floordiv(arena.sub(arena.add(x->sizes[d], k(2 * *p)), arena.add(reach, k(1))), k(*s)), k(1));
    }
    if (c.less(n, k(1)) != false) return std::nullopt;
    sizes.push_back(n);
  }
  if (x->dim() == 3 && x->device.type == DeviceType::CPU) return along_a_line(c, *x, *w, *groups, std::move(sizes));
  auto fx = suggested_format(c, *x), fw = suggested_format(c, *w);
  if (!fx || !fw) return std::nullopt;
  TensorType t = c.fresh(*x, x->dtype, std::move(sizes));
  if (*fx || *fw) {
    // The CPU's kernels keep channels last, in three dimensions those of the library alone; the GPU's for what is not
    // double, in two; other backends decide by themselves.
    const bool volume = x->dim() == 5;
    bool kept = x->device.type == DeviceType::CUDA  ? x->dim() == 4 && x->dtype != DType::F64
                : x->device.type == DeviceType::CPU ? x->dim() == 4 || (volume && of_library(x->dtype))
                                                    : false;
    if (!kept) return std::nullopt;
    std::optional<int8_t> format = volume ? 3 : 2;
    if (x->device.type == DeviceType::CPU) format = format_of_groups(c, *w, t.sizes, *groups, *format);
    if (!format) return std::nullopt;
    t.strides = format_strides(arena, t.sizes, *format);
  } else if (x->dim() != 4 && !(is_contiguous(arena, *x) && is_contiguous(arena, *w))) {
    return std::nullopt;
  }
  return one(std::move(t));
}

Types convolution_backward(const Call& c) {
  const TensorType *g = c.tensor(0), *x = c.tensor(1), *w = c.tensor(2);
  auto* mask = c.get<BoolList>(10);
  if (!g || !x || !w || !mask || mask->v.size() != 3 || g->dim() < 3) return std::nullopt;
  for (const TensorType* t : {g, x, w}) {
    auto f = suggested_format(c, *t);
    if (!f || *f) return std::nullopt;
    if (t->dim() != 4 && !is_contiguous(c.arena(), *t)) return std::nullopt;
  }
  TensorType none = c.fresh(*x, DType::Opaque, {});
  std::vector<TensorType> out{none, none, none};
  if (mask->v[0]) out[0] = c.fresh(*x, x->dtype, x->sizes);
  if (mask->v[1]) out[1] = c.fresh(*w, w->dtype, w->sizes);
  if (mask->v[2]) out[2] = c.fresh(*w, w->dtype, {g->sizes[1]});
  return out;
}

// One pooled dimension; ceil mode keeps the last window only if it starts inside the input or its left padding.
std::optional<Expr> pooled(const Call& c, Expr n, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation,
                           bool ceil) {
  sym::ExprArena& arena = c.arena();
  if (stride < 1 || kernel < 1 || pad > kernel / 2) return std::nullopt;
  int64_t reach = dilation * (kernel - 1) + 1;
  if (ceil) {
    auto size = arena.as_const(n);
    if (!size) return std::nullopt;
    if (*size + 2 * pad < reach) return std::nullopt;
    int64_t out = (*size + 2 * pad - reach + stride - 1) / stride + 1;
    if ((out - 1) * stride >= *size + pad) --out;
    return out >= 1 ? std::optional(arena.constant(out)) : std::nullopt;
  }
  Expr out = arena.add(arena.floordiv(arena.add(n, arena.constant(2 * pad - reach)), arena.constant(stride)),
                       arena.constant(1));
  if (arena.range(out).lo < 1) return std::nullopt;
  return out;
}

Types pool(const Call& c, const TensorType& x, bool max) {
  auto kernel = c.integers(1), stride = c.integers(2), pad = c.integers(3);
  auto dilation = max ? c.integers(4) : std::optional(std::vector<int64_t>{1});
  if (!kernel || !stride || !pad || !dilation || x.dim() != 4 || c.arena().range(x.sizes[1]).lo < 1)
    return std::nullopt;
  // What the CPU's kernels are not made for, and its Meta kernels take.
  const bool made = (is_floating(x.dtype) && !float8(x.dtype)) || (max ? is_integral(x.dtype) : x.dtype == DType::I64);
  if (x.device.type == DeviceType::CPU && !made) return c.refuse();
  if (stride->empty()) stride = kernel;
  Sizes sizes{x.sizes[0], x.sizes[1]};
  for (size_t d = 0; d < 2; ++d) {
    auto k = at(*kernel, d), s = at(*stride, d), p = at(*pad, d), l = at(*dilation, d);
    if (!k || !s || !p || !l) return std::nullopt;
    auto n = pooled(c, x.sizes[d + 2], *k, *s, *p, *l, c.flag(max ? 5 : 4));
    if (!n) return std::nullopt;
    sizes.push_back(*n);
  }
  auto format = suggested_format(c, x);
  if (!format) return std::nullopt;
  TensorType t = c.fresh(x, x.dtype, std::move(sizes));
  t.strides = format_strides(c.arena(), t.sizes, *format);
  if (!max) return one(std::move(t));
  TensorType i = t;
  i.dtype = DType::I64;
  return std::vector<TensorType>{std::move(t), std::move(i)};
}

}  // namespace

Types conv_types(const Call& c) {
  const TensorType* x = c.tensor(0);
  if (!x) return std::nullopt;
  switch (c.op) {
    case Op::convolution: return convolution(c);
    case Op::convolution_backward: return convolution_backward(c);
    case Op::max_pool2d_with_indices: return pool(c, *x, true);
    case Op::avg_pool2d: return pool(c, *x, false);
    case Op::max_pool2d_with_indices_backward:
    case Op::avg_pool2d_backward:
    case Op::_adaptive_avg_pool2d_backward: {
      const TensorType* in = c.tensor(1);
      if (!in || !is_contiguous(c.arena(), *in) || !is_contiguous(c.arena(), *x)) return std::nullopt;
      return one(c.fresh(*in, in->dtype, in->sizes));
    }
    case Op::upsample_nearest2d: return resampled(c, *x, false);
    default: return std::nullopt;
  }
}

}  // namespace braze::graph
