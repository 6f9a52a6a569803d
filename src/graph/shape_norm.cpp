// Softmax, normalisations and losses: the operators that passes/decompose takes apart.
#include <algorithm>
#include <iterator>

#include "graph/shape_rules.h"

namespace braze::graph {
namespace {

TensorType undefined(const Call& c, const TensorType& like) { return c.fresh(like, DType::Opaque, {}); }

// Gradients under a mask of three, each contiguous like a tensor.
Types masked(const Call& c, size_t mask_at, std::vector<const TensorType*> like) {
  auto* mask = c.get<BoolList>(mask_at);
  if (!mask || mask->v.size() != like.size()) return std::nullopt;
  std::vector<TensorType> out;
  for (size_t i = 0; i < like.size(); ++i) {
    if (mask->v[i] && !like[i]) return std::nullopt;
    out.push_back(mask->v[i] ? c.fresh(*like[i], like[i]->dtype, like[i]->sizes) : undefined(c, *c.tensor(0)));
  }
  return out;
}

std::optional<Sizes> normalized(const Call& c, const TensorType& x, size_t i) {  // sizes of the statistics
  auto* shape = c.get<IntList>(i);
  if (!shape || shape->v.size() > x.dim()) return std::nullopt;
  size_t lead = x.dim() - shape->v.size();
  Sizes out = x.sizes;
  for (size_t d = lead; d < x.dim(); ++d) {
    if (!c.surely_equal(x.sizes[d], shape->v[d - lead])) return std::nullopt;
    out[d] = c.arena().constant(1);
  }
  return out;
}

// Kernels take a weight and a bias (the arguments from `first` on) of just the sizes that are normalised (argument 1).
bool fit_normalized(const Call& c, size_t first) {
  if (!c.recording()) return true;
  const Sizes& sizes = c.get<IntList>(1)->v;
  for (size_t i : {first, first + 1})
    if (const TensorType* p = c.tensor(i); p && !c.same_sizes(p->sizes, sizes)) return false;
  return true;
}

// In eager mode on the CPU the statistics take the parameters' dtype; elsewhere half types accumulate in float.
DType statistics_dtype(const TensorType& x, const TensorType* weight) {
  if (x.device.type != DeviceType::CPU) return x.dtype == DType::F16 || x.dtype == DType::BF16 ? DType::F32 : x.dtype;
  return weight ? weight->dtype : x.dtype;
}

// A CPU's kernels take parameters of the input's dtype, or float32 ones beside half types.
bool mixes(const TensorType& x, const TensorType* weight) {
  return x.device.type == DeviceType::CPU && weight && weight->dtype != x.dtype &&
         !(size_of(x.dtype) == 2 && weight->dtype == DType::F32);
}

Types batch_norm(const Call& c, const TensorType& x, bool training, size_t weight_at) {
  if (x.dim() < 2) return std::nullopt;
  const TensorType* weight = c.tensor(weight_at);
  if (mixes(x, weight) || mixes(x, c.tensor(weight_at + 2))) return c.refuse();
  TensorType y = c.fresh(x, x.dtype, x.sizes);
  if (!is_contiguous(c.arena(), x)) {
    auto last = lies_channels_last(c, x);
    auto format = last == true ? std::optional<int8_t>(x.dim() == 4 ? 2 : 3)
                  : last       ? suggested_format(c, x)
                               : std::nullopt;
    // Anything else the kernel of the CPU lays out as suggested, where its Meta kernel would keep the strides.
    if (!format || (!*last && x.device.type != DeviceType::CPU)) return std::nullopt;
    y.strides = format_strides(c.arena(), y.sizes, *format);
  }
  if (!training && x.device.type != DeviceType::CPU) return std::nullopt;
  TensorType s = c.fresh(x, statistics_dtype(x, weight), {training ? x.sizes[1] : c.arena().constant(0)});
  return std::vector<TensorType>{std::move(y), s, s};
}

// Of the strides of `like`, which eager keeps.
std::optional<TensorType> preserved(const Call& c, const TensorType& like) {
  auto strides = preserved_strides(c.arena(), like, c.context.decide);
  if (!strides) return std::nullopt;
  TensorType t = c.fresh(like, like.dtype, like.sizes);
  t.strides = std::move(*strides);
  return t;
}

bool one_element(const Call& c, const TensorType* t, DType dtype) {
  return t && t->dtype == dtype && c.arena().is_const(numel(c.arena(), t->sizes), 1);
}

// Rounded to whole steps, and where these were in range: (input, scale, zero point, ..., least, most, ...). Of other
// arguments eager says what is wrong.
Types fake_quantized(const Call& c, const TensorType& x, size_t least_at) {
  auto least = c.integer(least_at), most = c.integer(least_at + 1);
  auto t = preserved(c, x);
  if (!t || x.dtype != DType::F32 || !least || !most || *least > *most) return std::nullopt;
  switch (c.op) {
    case Op::fake_quantize_per_tensor_affine_cachemask: {
      auto zero = c.integer(2);
      if (!zero || *zero < *least || *zero > *most || !c.get<double>(1)) return std::nullopt;
      break;
    }
    case Op::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams:
      if (!one_element(c, c.tensor(1), DType::F32) || !one_element(c, c.tensor(2), DType::I32) ||
          !one_element(c, c.tensor(3), DType::I64))
        return std::nullopt;
      break;
    default: {  // a scale for each channel
      const TensorType *scale = c.tensor(1), *zero = c.tensor(2);
      auto axis = c.integer(3);
      if (!scale || !zero || !axis || *axis < 0 || *axis >= static_cast<int64_t>(x.dim())) return std::nullopt;
      Expr channels = x.sizes[static_cast<size_t>(*axis)];
      for (const TensorType* p : {scale, zero})
        if (p->dim() != 1 || !c.surely_equal(p->sizes[0], channels)) return std::nullopt;
      if (scale->dtype != DType::F32 || (zero->dtype != DType::I32 && zero->dtype != DType::F32)) return std::nullopt;
    }
  }
  TensorType mask = *t;
  mask.dtype = DType::Bool;
  return std::vector<TensorType>{std::move(*t), std::move(mask)};
}

// With scales and zero points that are learnt: (input, scale, zero point, [axis,] least, most, factor), which the
// gradient before them shifts by one.
Types learnable_quantized(const Call& c, bool backward, bool per_channel) {
  size_t at = backward ? 1 : 0, least_at = at + (per_channel ? 4 : 3);
  const TensorType *x = c.tensor(at), *scale = c.tensor(at + 1), *zero = c.tensor(at + 2);
  auto least = c.integer(least_at), most = c.integer(least_at + 1);
  if (!x || !scale || !zero || !least || !most || *least > 0 || *most < 0 || x->dtype != DType::F32)
    return std::nullopt;
  Expr parameters = c.arena().constant(1);
  if (per_channel) {
    auto axis = c.integer(at + 3);
    if (!axis || *axis < 0 || *axis >= static_cast<int64_t>(x->dim())) return std::nullopt;
    parameters = x->sizes[static_cast<size_t>(*axis)];
  }
  for (const TensorType* p : {scale, zero})
    if (p->dtype != DType::F32 || p->dim() != 1 || !c.surely_equal(p->sizes[0], parameters)) return std::nullopt;
  auto t = preserved(c, *x);
  if (!t) return std::nullopt;
  if (!backward) return one(std::move(*t));
  TensorType p = c.fresh(*x, DType::F32, {parameters});
  return std::vector<TensorType>{std::move(*t), p, p};
}

Types reduced_loss(const Call& c, const TensorType& x, const TensorType& y, size_t reduction_at) {
  auto reduction = c.integer(reduction_at);
  if (!reduction || x.dtype != y.dtype || !is_floating(x.dtype)) return std::nullopt;
  auto sizes = broadcast_sizes(c.arena(), x.sizes, y.sizes, c.context.decide);
  if (!sizes) return std::nullopt;
  if (*reduction) return one(c.fresh(x, x.dtype, {}));
  auto strides = iterator_strides(c.arena(), *sizes, {&x, &y}, false, c.context.decide);
  if (!strides) return std::nullopt;
  return one(TensorType{x.dtype, x.device, std::move(*sizes), std::move(*strides), c.arena().constant(0)});
}

// What the kernels of losses by classes take, and their Meta kernels do not look at: classes as int64 or uint8, and a
// weight for each class.
bool are_classes(const Call& c, const TensorType& x, const TensorType& target, const TensorType* weight) {
  if (target.dtype != DType::I64 && target.dtype != DType::U8) return false;
  if (!weight) return true;
  return weight->dtype == x.dtype && weight->dim() == 1 &&
         c.surely_equal(weight->sizes[0], x.sizes[x.dim() == 1 ? 0 : 1]);
}

// nll_loss2d of [N, classes, height, width] and [N, height, width].
Types of_pixels(const Call& c, const TensorType& x, const TensorType& target, int64_t reduction) {
  if (x.dim() != 4 || target.dim() != 3) return std::nullopt;
  for (size_t d : {0, 2, 3})
    if (!c.surely_equal(target.sizes[d ? d - 1 : 0], x.sizes[d])) return std::nullopt;
  return std::vector<TensorType>{c.fresh(x, x.dtype, reduction == 0 ? target.sizes : Sizes{}), c.fresh(x, x.dtype, {})};
}

// channel_shuffle on the CPU, of which the Meta kernel is a decomposition that keeps the operand's order.
Types shuffled(const Call& c, const TensorType& x) {
  auto groups = c.integer(1);
  sym::ExprArena& arena = c.arena();
  if (x.device.type != DeviceType::CPU || !is_floating(x.dtype) || float8(x.dtype)) return std::nullopt;
  if (x.dim() < 3 || !groups || *groups < 1) return std::nullopt;
  const bool some = std::ranges::all_of(x.sizes, [&](Expr s) { return arena.range(s).lo > 0; });
  auto format = suggested_format(c, x);
  if (!some || !format) return std::nullopt;
  if (c.equal(arena.mod(x.sizes[1], arena.constant(*groups)), arena.constant(0)) != true) return std::nullopt;
  return with_strides(c.fresh(x, x.dtype, x.sizes), format_strides(arena, x.sizes, *format));
}

// glu: the iterator runs over both halves.
Types gated(const Call& c, const TensorType& x) {
  sym::ExprArena& arena = c.arena();
  auto d = x.dim() ? c.dim(1, x.dim()) : std::nullopt;
  if (!d || !is_contiguous(arena, x)) return std::nullopt;
  const Expr size = x.sizes[*d], two = arena.constant(2);
  if (c.equal(arena.mod(size, two), arena.constant(0)) != true) return std::nullopt;
  TensorType half = x;
  half.sizes[*d] = arena.floordiv(size, two);
  auto strides = iterator_strides(arena, half.sizes, {&half, &half}, false, c.context.decide);
  return with_strides(c.fresh(x, x.dtype, half.sizes), std::move(strides));
}

}  // namespace

Types norm_types(const Call& c) {
  const TensorType* x = c.tensor(0);
  if (!x) return std::nullopt;
  if (c.op == Op::channel_shuffle) return shuffled(c, *x);
  if (c.op == Op::fill_Scalar || c.op == Op::fill_Tensor) {
    if (!is_non_overlapping_and_dense(c.arena(), *x)) return std::nullopt;
    TensorType t = *x;
    t.offset = c.arena().constant(0);
    return one(std::move(t));
  }
  if (!is_floating(x->dtype)) {
    // Eager has no kernels for these; Meta kernels and decompositions do not care.
    static constexpr Op kOfFloats[] = {Op::_softmax,          Op::_log_softmax, Op::glu,
                                       Op::smooth_l1_loss,    Op::huber_loss,   Op::nll_loss_forward,
                                       Op::nll_loss2d_forward};
    const bool refused =
        !is_complex(x->dtype) && std::find(std::begin(kOfFloats), std::end(kOfFloats), c.op) != std::end(kOfFloats);
    return refused ? c.refuse() : std::nullopt;
  }
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (c.op) {
    case Op::fake_quantize_per_tensor_affine_cachemask: return fake_quantized(c, *x, 3);
    case Op::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams: case Op::fake_quantize_per_channel_affine_cachemask: return fake_quantized(c, *x, 4);
    case Op::_fake_quantize_learnable_per_tensor_affine: return learnable_quantized(c, false, false);
    case Op::_fake_quantize_learnable_per_channel_affine: return learnable_quantized(c, false, true);
    case Op::_fake_quantize_learnable_per_tensor_affine_backward: return learnable_quantized(c, true, false);
    case Op::_fake_quantize_learnable_per_channel_affine_backward: return learnable_quantized(c, true, true);
    case Op::_softmax: case Op::_log_softmax:
      if (c.integer(1) && !c.dim(1, x->dim())) return c.refuse();
      if (!c.dim(1, x->dim())) return std::nullopt;
      return one(c.fresh(*x, c.flag(2) ? DType::F32 : x->dtype, x->sizes));
    case Op::_safe_softmax:
      if (!c.dim(1, x->dim()) || !is_contiguous(c.arena(), *x)) return std::nullopt;
      return one(c.fresh(*x, c.dtype(2, x->dtype), x->sizes));
    case Op::_softmax_backward_data: case Op::_log_softmax_backward_data: return one(c.fresh(*x, c.dtype(3, x->dtype), x->sizes));
    case Op::native_layer_norm: {
      auto stats = normalized(c, *x, 1);
      if (!stats) return std::nullopt;
      if (mixes(*x, c.tensor(2)) || !fit_normalized(c, 2)) return c.refuse();
      TensorType s = c.fresh(*x, statistics_dtype(*x, c.tensor(2)), std::move(*stats));
      return std::vector<TensorType>{c.fresh(*x, x->dtype, x->sizes), s, s};
    }
    case Op::native_layer_norm_backward: {
      const TensorType* in = c.tensor(1);
      return in ? masked(c, 7, {in, c.tensor(5), c.tensor(6) ? c.tensor(6) : c.tensor(5)}) : std::nullopt;
    }
    case Op::_fused_rms_norm: {
      auto stats = normalized(c, *x, 1);
      const bool halves = x->device.type != DeviceType::CPU && compute_dtype(x->dtype) == DType::F32 && !float8(x->dtype);
      if (!stats || !is_contiguous(c.arena(), *x) || !(halves || x->dtype == DType::F32)) return std::nullopt;
      const TensorType* w = c.tensor(2);
      if (w && w->dtype != x->dtype) return std::nullopt;
      return std::vector<TensorType>{c.fresh(*x, x->dtype, x->sizes),
                                     c.fresh(*x, statistics_dtype(*x, w), std::move(*stats))};
    }
    case Op::native_group_norm: {
      auto *n = c.get<Expr>(3), *groups = c.get<Expr>(6);
      auto format = suggested_format(c, *x);
      if (!n || !groups || !format) return std::nullopt;
      if (mixes(*x, c.tensor(1))) return c.refuse();
      TensorType y = c.fresh(*x, x->dtype, x->sizes);
      y.strides = format_strides(c.arena(), y.sizes, *format);
      TensorType s = c.fresh(*x, statistics_dtype(*x, c.tensor(1)), {*n, *groups});
      return std::vector<TensorType>{std::move(y), s, s};
    }
    case Op::native_group_norm_backward: {
      const TensorType *in = c.tensor(1), *w = c.tensor(4);
      auto format = in ? suggested_format(c, *in) : std::nullopt;
      if (!format || (*format && in->device.type != DeviceType::CPU)) return std::nullopt;
      auto types = masked(c, 9, {in, w, w});
      if (types && !types->empty() && (*types)[0].dtype != DType::Opaque) (*types)[0].strides = format_strides(c.arena(), in->sizes, *format);
      return types;
    }
    case Op::native_batch_norm: return batch_norm(c, *x, c.flag(5), 1);
    case Op::_native_batch_norm_legit: return batch_norm(c, *x, c.flag(5), 1);
    case Op::_native_batch_norm_legit_no_stats: return batch_norm(c, *x, c.flag(3), 1);
    case Op::_native_batch_norm_legit_no_training: return batch_norm(c, *x, false, 1);
    case Op::_native_batch_norm_legit_functional: {
      auto t = batch_norm(c, *x, c.flag(5), 1);
      const TensorType *mean = c.tensor(3), *var = c.tensor(4);
      if (!t || !mean || !var) return std::nullopt;
      t->push_back(c.fresh(*mean, mean->dtype, mean->sizes));
      t->push_back(c.fresh(*var, var->dtype, var->sizes));
      return t;
    }
    case Op::native_batch_norm_backward: {
      const TensorType *in = c.tensor(1), *w = c.tensor(2);
      if (!in || !is_contiguous(c.arena(), *in) || !is_contiguous(c.arena(), *x)) return std::nullopt;
      return masked(c, 9, {in, w, w});
    }
    case Op::cudnn_batch_norm_backward: {
      auto t = batch_norm(c, *x, true, 2);
      const TensorType* w = c.tensor(2);
      if (!t || !w) return std::nullopt;
      (*t)[1] = (*t)[2] = c.fresh(*w, w->dtype, w->sizes);
      return t;
    }
    case Op::mse_loss: case Op::smooth_l1_loss: case Op::huber_loss: {
      const TensorType* y = c.tensor(1);
      if (auto* delta = c.get<double>(3); delta && (c.op == Op::huber_loss ? !(*delta > 0) : *delta < 0)) return c.refuse();
      // Eager's result is of the first one's dtype, which not every other can be converted to.
      if (c.op == Op::huber_loss && y && y->dtype != x->dtype) return c.refuse();
      return y ? reduced_loss(c, *x, *y, 2) : std::nullopt;
    }
    case Op::mse_loss_backward: case Op::smooth_l1_loss_backward: case Op::huber_loss_backward: {
      const TensorType *in = c.tensor(1), *y = c.tensor(2);
      if (!in || !y || x->dtype != in->dtype || y->dtype != in->dtype || is_complex(in->dtype) || !c.same_sizes(in->sizes, y->sizes)) return std::nullopt;
      return one(c.fresh(*in, in->dtype, in->sizes));
    }
    case Op::binary_cross_entropy: {
      const TensorType *target = c.tensor(1), *weight = c.tensor(2);
      bool same = (!target || target->dtype == x->dtype) && (!weight || weight->dtype == x->dtype);
      return same ? std::nullopt : c.refuse();
    }
    case Op::nll_loss_forward: case Op::nll_loss2d_forward: {
      const TensorType* target = c.tensor(1);
      auto reduction = c.integer(3);
      if (!target || !reduction || x->dim() == 0) return std::nullopt;
      if (!are_classes(c, *x, *target, c.tensor(2))) return c.refuse();
      if (c.op == Op::nll_loss2d_forward) return of_pixels(c, *x, *target, *reduction);
      if (x->dim() > 2) return std::nullopt;
      bool each = *reduction == 0 && x->dim() == 2;
      return std::vector<TensorType>{c.fresh(*x, x->dtype, each ? Sizes{x->sizes[0]} : Sizes{}), c.fresh(*x, x->dtype, {})};
    }
    case Op::nll_loss_backward: case Op::nll_loss2d_backward: case Op::glu_backward: {
      const TensorType* in = c.tensor(1);
      if (!in || (c.op != Op::nll_loss_backward && !is_contiguous(c.arena(), *in))) return std::nullopt;
      return one(c.fresh(*in, in->dtype, in->sizes));
    }
    case Op::_adaptive_avg_pool2d: return resized_planes(c, *x);
    case Op::glu: return gated(c, *x);
    default: return std::nullopt;
  }
  // clang-format on
}

Types attention_types(const Call& c) {
  // [batch, heads, length, depth] as a transposed [batch, length, heads, depth].
  auto swapped = [&](const TensorType& like, DType dtype, Sizes s) {
    TensorType t = c.fresh(like, dtype, {s[0], s[2], s[1], s[3]});
    std::swap(t.sizes[1], t.sizes[2]);
    std::swap(t.strides[1], t.strides[2]);
    return t;
  };
  switch (c.op) {
    case Op::_scaled_dot_product_flash_attention_for_cpu: {
      const TensorType *q = c.tensor(0), *k = c.tensor(1), *v = c.tensor(2);
      if (!q || !k || !v || q->dim() != 4 || k->dim() != 4 || v->dim() != 4 || q->dtype != k->dtype ||
          q->dtype != v->dtype)
        return std::nullopt;
      DType acc = q->dtype == DType::F64 ? DType::F64 : DType::F32;
      TensorType lse = c.fresh(*q, acc, {q->sizes[0], q->sizes[2], q->sizes[1]});
      std::swap(lse.sizes[1], lse.sizes[2]);
      std::swap(lse.strides[1], lse.strides[2]);
      // The result is laid out like the query.
      auto laid_out = preserved_strides(c.arena(), *q, c.context.decide);
      if (!c.surely_equal(q->sizes[3], v->sizes[3]) || !laid_out) return std::nullopt;
      TensorType out = c.fresh(*q, q->dtype, q->sizes);
      out.strides = std::move(*laid_out);
      return std::vector<TensorType>{std::move(out), std::move(lse)};
    }
    case Op::_scaled_dot_product_flash_attention_for_cpu_backward: {
      std::vector<TensorType> out;
      for (size_t i : {1, 2, 3}) {
        const TensorType* t = c.tensor(i);
        if (!t || t->dim() != 4) return std::nullopt;
        out.push_back(swapped(*t, t->dtype, t->sizes));
      }
      return out;
    }
    default: break;
  }
  return std::nullopt;
}

}  // namespace braze::graph
