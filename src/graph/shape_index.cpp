// Gathers, scatters, concatenation and padding.
#include <algorithm>
#include <cstdlib>

#include "graph/shape_rules.h"

namespace braze::graph {
namespace {

bool is_index(const TensorType* t) { return t && (t->dtype == DType::I64 || t->dtype == DType::I32); }

// index.Tensor: the iterator runs over the restrided source (stride 0 where indexed) and the indices.
Types index(const Call& c) {
  const TensorType* x = c.tensor(0);
  auto* list = c.get<TensorList>(1);
  if (!x || !list || list->size() > x->dim()) return std::nullopt;
  sym::ExprArena& arena = c.arena();
  Sizes common;
  std::vector<const TensorType*> given(x->dim(), nullptr);
  std::vector<size_t> indexed;
  for (size_t d = 0; d < list->size(); ++d) {
    if (!(*list)[d].valid()) continue;
    const TensorType* t = c.context.operand((*list)[d]).type;
    if (!is_index(t) || t->device != x->device) return std::nullopt;
    auto b = indexed.empty() ? std::optional(t->sizes) : broadcast_sizes(arena, common, t->sizes, c.context.decide);
    if (!b) return std::nullopt;
    common = std::move(*b);
    given[d] = t;
    indexed.push_back(d);
  }
  if (indexed.empty()) return std::nullopt;
  for (size_t d : indexed)
    if (arena.range(x->sizes[d]).lo < 1 && !arena.depends_on_data(x->sizes[d])) return std::nullopt;
  // A size of 1 is broadcast, and has a place of its own among the strides.
  for (Expr& size : common) size = c.one_or_more(size).value_or(size);
  // Indices that are not side by side go to the front, their dimensions with them.
  bool adjacent = indexed.back() - indexed.front() + 1 == indexed.size();
  std::vector<size_t> order;
  if (!adjacent) order = indexed;
  for (size_t d = 0; d < x->dim(); ++d)
    if (adjacent || !given[d]) order.push_back(d);
  size_t before = adjacent ? indexed.front() : 0, after = x->dim() - before - indexed.size();
  TensorType source = *x;
  source.sizes.clear();
  source.strides.clear();
  for (size_t k = 0; k < order.size(); ++k) {
    if (k == before) {
      source.sizes.insert(source.sizes.end(), common.begin(), common.end());
      source.strides.insert(source.strides.end(), common.size(), arena.constant(0));
    }
    if (given[order[k]]) continue;
    auto kept = c.one_or_more(x->sizes[order[k]]);
    if (!kept) return std::nullopt;
    source.sizes.push_back(*kept);
    source.strides.push_back(x->strides[order[k]]);
  }
  std::vector<TensorType> shown;
  for (size_t d : indexed) {  // expanded to the common sizes, then reshaped to have ones before and after
    TensorType t = *given[d];
    size_t shift = common.size() - t.dim();
    Sizes strides;
    for (size_t k = 0; k < common.size(); ++k) {
      bool own = k >= shift && !(arena.is_const(t.sizes[k - shift], 1) && !arena.is_const(common[k], 1));
      strides.push_back(own ? t.strides[k - shift] : arena.constant(0));
    }
    // Reshaping gives ones behind the stride of the last dimension, ones before the step from end to end of the first
    // that is not 1.
    Expr inner = strides.empty() ? arena.constant(1) : strides.back(), outer = inner;
    for (size_t k = common.size(); k-- > 0;)
      if (!arena.is_const(common[k], 1)) outer = arena.mul(common[k], strides[k]);
    strides.insert(strides.begin(), before, outer);
    strides.insert(strides.end(), after, inner);
    t.sizes.assign(before, arena.constant(1));
    t.sizes.insert(t.sizes.end(), common.begin(), common.end());
    t.sizes.insert(t.sizes.end(), after, arena.constant(1));
    t.strides = std::move(strides);
    shown.push_back(std::move(t));
  }
  std::vector<const TensorType*> operands{&source};
  for (const TensorType& t : shown) operands.push_back(&t);
  auto strides = iterator_strides(arena, source.sizes, operands, false, c.context.decide);
  if (!strides) return std::nullopt;
  return one(TensorType{x->dtype, x->device, source.sizes, std::move(*strides), arena.constant(0)});
}

// Of index_put: whether the values can be expanded to what the indices choose. Masks are left to the kernel.
bool takes_values(const Call& c, const TensorType& x, const TensorType& values) {
  auto* list = c.get<TensorList>(1);
  if (!list || list->size() > x.dim()) return false;
  Sizes common, chosen;
  size_t first = x.dim(), last = 0, count = 0;
  for (size_t d = 0; d < x.dim(); ++d) {
    if (d >= list->size() || !(*list)[d].valid()) {
      chosen.push_back(x.sizes[d]);
      continue;
    }
    const TensorType* t = c.context.operand((*list)[d]).type;
    if (!is_index(t)) return true;
    auto both = broadcast_sizes(c.arena(), common, t->sizes, c.context.decide);
    if (!both) return false;
    common = std::move(*both);
    first = std::min(first, d);
    last = d;
    ++count;
  }
  // Indices that are not side by side go to the front, as in index().
  bool adjacent = count && last - first + 1 == count;
  chosen.insert(chosen.begin() + static_cast<ptrdiff_t>(adjacent ? first : 0), common.begin(), common.end());
  return c.expands(values.sizes, chosen);
}

Types cat(const Call& c, const TensorList& list, bool stack) {
  if (list.empty()) return std::nullopt;
  sym::ExprArena& arena = c.arena();
  Promotion promotion(c.context.default_dtype);
  std::vector<const TensorType*> parts;
  for (ValueId v : list) {
    if (!v.valid()) return std::nullopt;
    Operand o = c.context.operand(v);
    if (!o.type || is_complex(o.type->dtype)) return std::nullopt;
    promotion.tensor(*o.type, o.wrapped_number);
    // cat skips tensors of sizes [0], whatever the rank of the others.
    if (stack || o.type->dim() != 1 || !arena.is_const(o.type->sizes[0], 0)) parts.push_back(o.type);
  }
  if (parts.empty() || promotion.result() == DType::Opaque) return std::nullopt;
  const TensorType& first = *parts[0];
  auto dim = c.integer(1) ? wrap_dim(*c.integer(1), first.dim() + (stack ? 1 : 0)) : std::nullopt;
  if (!dim || (!stack && first.dim() == 0)) return std::nullopt;
  size_t d = *dim;
  Sizes sizes = first.sizes;
  if (stack)
    sizes.insert(sizes.begin() + static_cast<ptrdiff_t>(d), arena.constant(static_cast<int64_t>(parts.size())));
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i]->dim() != first.dim() || parts[i]->device != first.device) return std::nullopt;
    for (size_t k = 0; k < first.dim(); ++k) {
      if (!stack && k == d)
        sizes[d] = arena.add(sizes[d], parts[i]->sizes[d]);
      else if (!c.surely_equal(parts[i]->sizes[k], first.sizes[k]))
        return std::nullopt;
    }
  }
  TensorType t = c.fresh(first, promotion.result(), std::move(sizes));
  if (t.dim() != 4 && t.dim() != 5) return one(std::move(t));
  if (stack) {
    for (const TensorType* p : parts)
      if (!is_contiguous(arena, *p)) return std::nullopt;
    return one(std::move(t));
  }
  std::optional<int8_t> format;
  for (const TensorType* p : parts) {
    auto f = suggested_format(c, *p);
    if (!f) return std::nullopt;
    if (format && *format != *f) {
      format = 0;
      break;
    }
    format = f;
  }
  t.strides = format_strides(arena, t.sizes, *format);
  return one(std::move(t));
}

// roll of four or five dimensions: on the CPU each dimension in turn is put together from two parts by cat.
Types roll(const Call& c, const TensorType& x) {
  auto *shifts = c.get<IntList>(1), *dims = c.get<IntList>(2);
  sym::ExprArena& arena = c.arena();
  TensorType t = c.fresh(x, x.dtype, x.sizes);
  if (x.device.type != DeviceType::CPU || (dims && dims->v.empty())) return one(std::move(t));
  if (!shifts || !dims || shifts->v.size() != dims->v.size()) return std::nullopt;
  const bool rows = is_contiguous(arena, x);  // as the Meta kernel has it, whatever the shift
  t = x;
  for (size_t i = 0; i < dims->v.size(); ++i) {
    auto d = wrap_dim(arena.as_const(dims->v[i]).value_or(INT64_MAX), x.dim());
    auto shift = rows ? arena.as_const(shifts->v[i]) : c.specialised(shifts->v[i]);
    if (!shift || !d) return std::nullopt;
    const Expr n = x.sizes[*d];
    auto size = arena.as_const(n);
    if (!size && !rows && c.less(arena.constant(std::abs(*shift)), n) == false) size = c.specialised(n);
    Expr start;
    if (size) {
      if (*size <= 0) return std::nullopt;
      start = arena.constant(((*size - *shift % *size) % *size + *size) % *size);
    } else {
      if (c.less(arena.constant(std::abs(*shift)), n) != true) return std::nullopt;
      start = *shift > 0 ? arena.sub(n, arena.constant(*shift)) : arena.constant(-*shift);
    }
    std::optional<int8_t> format;
    for (Expr part : {arena.sub(n, start), start}) {
      TensorType piece = t;
      piece.sizes[*d] = part;
      auto f = suggested_format(c, piece);
      if (!f) return std::nullopt;
      format = format && *format != *f ? int8_t{0} : *f;
    }
    t.strides = format_strides(arena, t.sizes, *format);
  }
  t.offset = arena.constant(0);
  return one(std::move(t));
}

// Whether the dimensions are as long as what negative paddings take away, at the start first: eager narrows by these
// before it adds anything.
bool has_what_pads_take(const Call& c, const TensorType& x, const Sizes& pads) {
  if (!c.recording()) return true;
  const Expr zero = c.arena().constant(0);
  for (size_t k = 0; k < pads.size(); ++k) {
    if (c.less(pads[k], zero) != true) continue;
    Expr left = c.arena().add(x.sizes[x.dim() - 1 - k / 2], pads[k]);
    if (k % 2 && c.less(pads[k - 1], zero) == true) left = c.arena().add(left, pads[k - 1]);
    if (!c.none_negative({left})) return false;
  }
  return true;
}

Types pad(const Call& c, const TensorType& x) {
  auto* pads = c.get<IntList>(1);
  sym::ExprArena& arena = c.arena();
  if (!pads || pads->v.size() % 2 || pads->v.size() / 2 > x.dim()) return std::nullopt;
  if (!has_what_pads_take(c, x, pads->v)) return c.refuse();
  Sizes sizes = x.sizes;
  bool grows = false;
  for (size_t k = 0; k < pads->v.size() / 2; ++k) {
    Expr& s = sizes[x.dim() - 1 - k];
    for (size_t side : {2 * k, 2 * k + 1}) {
      grows = grows || arena.range(pads->v[side]).lo > 0;
      s = arena.add(s, pads->v[side]);
    }
    if (arena.range(s).lo < 0 && !(arena.depends_on_data(s) && c.at_least(s, 0))) return std::nullopt;
  }
  auto format = suggested_format(c, x);
  // What only loses elements is a copy of a part, in the operand's order.
  if (!format || (!grows && x.strides != contiguous_strides(arena, x.sizes))) return std::nullopt;
  // A part without elements keeps the strides of the whole.
  auto is_zero = [&](Expr s) { return c.recording() ? c.equal(s, arena.constant(0)) == true : arena.is_const(s, 0); };
  const bool empty = !grows && std::ranges::any_of(sizes, is_zero);
  TensorType t = c.fresh(x, x.dtype, std::move(sizes));
  t.strides = empty ? x.strides : grows ? format_strides(arena, t.sizes, *format) : contiguous_strides(arena, t.sizes);
  return one(std::move(t));
}

// index_fill, of a copy that keeps the operand's order: (self, dim, index, value), the value a number or of no
// dimension.
Types filled(const Call& c, const TensorType& x) {
  const TensorType *i = c.tensor(2), *value = c.tensor(3);
  if (i && i->dtype != DType::I64) return c.refuse();
  const bool number =
      c.op == Op::index_fill_int_Scalar ? c.is_scalar(3) : value && !value->dim() && !is_complex(value->dtype);
  if (!i || i->dim() > 1 || !number || !c.dim(1, x.dim()) || i->device != x.device) return std::nullopt;
  TensorType t = x;
  t.offset = c.arena().constant(0);
  return with_strides(std::move(t), preserved_strides(c.arena(), x, c.context.decide));
}

// On the CPU; (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset,
// padding_idx). The bag of each index is only noted where the fast kernel for sums does not run.
Types embedding_bag(const Call& c) {
  const TensorType *w = c.tensor(0), *indices = c.tensor(1), *offsets = c.tensor(2), *scale = c.tensor(6);
  auto mode = c.integer(4), padding = c.integer(8);
  if (!w || !is_index(indices) || !is_index(offsets) || w->dim() != 2 || indices->dim() != 1 || offsets->dim() != 1 ||
      !mode || !padding || w->device.type != DeviceType::CPU)
    return std::nullopt;
  const DType place = indices->dtype == offsets->dtype ? offsets->dtype : DType::I64;
  sym::ExprArena& arena = c.arena();
  Expr bags = c.flag(7) ? arena.sub(offsets->sizes[0], arena.constant(1)) : offsets->sizes[0];
  bool fast =
      *mode == 0 && *padding < 0 && (w->dtype == DType::F32 || w->dtype == DType::F16 || w->dtype == DType::BF16);
  if (fast) {
    auto in_rows = c.equal(w->strides[1], arena.constant(1));
    auto scales = scale ? c.equal(scale->strides[0], arena.constant(1)) : std::optional(true);
    if (!in_rows || !scales) return std::nullopt;
    fast = *in_rows && *scales;
  }
  std::vector<TensorType> types;
  types.push_back(c.fresh(*w, w->dtype, {bags, w->sizes[1]}));
  types.push_back(c.fresh(*w, place, {fast ? arena.constant(0) : indices->sizes[0]}));
  types.push_back(c.fresh(*w, place, {bags}));
  types.push_back(c.fresh(*w, place, *mode == 2 ? Sizes{bags, w->sizes[1]} : Sizes{bags}));
  return types;
}

bool all_known(const Call& c, const TensorType& t) {
  return std::all_of(t.sizes.begin(), t.sizes.end(), [&](Expr e) { return c.arena().as_const(e).has_value(); });
}

// Of slice_scatter and its like, (self, src, where...): whether the source has the sizes of that part of self. nullopt:
// not known.
std::optional<bool> fits_view(const Call& c, const TensorType& source) {
  std::vector<Arg> where{c.args[0]};
  where.insert(where.end(), c.args.begin() + 2, c.args.end());
  const Op view = c.op == Op::slice_scatter    ? Op::slice_Tensor
                  : c.op == Op::select_scatter ? Op::select_int
                                               : Op::diagonal;
  Types part = view_types(Call{view, where, c.context});
  if (!part) return std::nullopt;
  const Sizes& sizes = part->at(0).sizes;
  if (c.same_sizes(sizes, source.sizes)) return true;
  bool differ = sizes.size() != source.sizes.size();
  for (size_t d = 0; !differ && d < sizes.size(); ++d) differ = c.equal(sizes[d], source.sizes[d]) == false;
  return differ ? std::optional(false) : std::nullopt;
}

}  // namespace

Types resampled(const Call& c, const TensorType& x, bool backward) {
  auto *sizes = c.get<IntList>(1), *whole = backward ? c.get<IntList>(2) : nullptr;
  if (!is_floating(x.dtype) || !sizes || x.dim() != sizes->v.size() + 2) return std::nullopt;
  sym::ExprArena& arena = c.arena();
  Sizes out{x.sizes[0], x.sizes[1]};
  if (backward) {
    if (!whole || whole->v.size() != x.dim() || !c.same_sizes(out, {whole->v[0], whole->v[1]})) return std::nullopt;
    for (size_t d = 0; d < sizes->v.size(); ++d)
      if (!c.surely_equal(x.sizes[d + 2], sizes->v[d])) return std::nullopt;
    out = whole->v;
  } else {
    out.insert(out.end(), sizes->v.begin(), sizes->v.end());
  }
  for (const Sizes* of : std::initializer_list<const Sizes*>{&out, &x.sizes})
    for (size_t d = 1; d < x.dim(); ++d)
      if (c.less((*of)[d], arena.constant(1)) != false) return std::nullopt;
  auto format = suggested_format(c, x);
  if (!format) return std::nullopt;
  TensorType t = c.fresh(x, x.dtype, std::move(out));
  t.strides = format_strides(arena, t.sizes, *format);
  return one(std::move(t));
}

Types index_types(const Call& c) {
  if (c.op == Op::_embedding_bag) return embedding_bag(c);
  if (auto* list = c.get<TensorList>(0))
    return c.op == Op::cat || c.op == Op::stack ? cat(c, *list, c.op == Op::stack) : std::nullopt;
  const TensorType* x = c.tensor(0);
  if (!x) return std::nullopt;
  sym::ExprArena& arena = c.arena();
  auto like = [&](const TensorType& t) { return one(c.fresh(t, t.dtype, t.sizes)); };
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (c.op) {
    case Op::embedding: {
      const TensorType* i = c.tensor(1);
      if (x->dim() != 2 || !is_index(i)) return std::nullopt;
      Sizes sizes = i->sizes;
      sizes.push_back(x->sizes[1]);
      return one(c.fresh(*x, x->dtype, std::move(sizes)));
    }
    case Op::gather: {
      const TensorType* i = c.tensor(2);
      if (!is_index(i) || i->dim() != x->dim() || !c.dim(1, x->dim())) return std::nullopt;
      for (size_t d = 0; d < x->dim(); ++d)  // eager checks the other dimensions
        if (d != *c.dim(1, x->dim()) && c.less(x->sizes[d], i->sizes[d]) != false) return std::nullopt;
      return one(c.fresh(*x, x->dtype, i->sizes));
    }
    case Op::index_select: {
      const TensorType* i = c.tensor(2);
      auto d = c.dim(1, x->dim());
      if (i && (i->dim() > 1 || !is_index(i))) return c.refuse();
      if (!is_index(i) || i->dim() != 1 || !d || x->dim() == 0) return std::nullopt;
      Sizes sizes = x->sizes;
      sizes[*d] = i->sizes[0];
      return one(c.fresh(*x, x->dtype, std::move(sizes)));
    }
    case Op::index_Tensor: case Op::_unsafe_index_Tensor: return index(c);
    case Op::index_put: case Op::_unsafe_index_put: {
      const TensorType* v = c.tensor(2);
      if (!v || v->dtype != x->dtype) return std::nullopt;
      if (!takes_values(c, *x, *v)) return c.refuse();
      TensorType t = *x;
      t.offset = arena.constant(0);
      return with_strides(std::move(t), preserved_strides(arena, *x, c.context.decide));
    }
    case Op::scatter_src: case Op::scatter_add: case Op::scatter_value: case Op::scatter_reduce_two: {
      const TensorType *i = c.tensor(2), *s = c.tensor(3);
      if (!is_index(i) || i->dtype != DType::I64 || i->dim() != x->dim() || !c.dim(1, x->dim())) return std::nullopt;
      if (c.op != Op::scatter_value && (!s || s->dtype != x->dtype || s->dim() != x->dim())) return std::nullopt;
      for (size_t d = 0; d < x->dim(); ++d) {
        if (d != *c.dim(1, x->dim()) && c.less(x->sizes[d], i->sizes[d]) != false) return std::nullopt;
        if (s && c.op != Op::scatter_value && c.less(s->sizes[d], i->sizes[d]) != false) return std::nullopt;
      }
      return like(*x);
    }
    case Op::index_copy: {
      const TensorType* i = c.tensor(2);
      return i && i->dtype != DType::I64 ? c.refuse() : std::nullopt;
    }
    case Op::index_fill_int_Scalar: case Op::index_fill_int_Tensor: return filled(c, *x);
    case Op::masked_select: {
      const TensorType* mask = c.tensor(1);
      return mask && mask->dtype != DType::Bool ? c.refuse() : std::nullopt;
    }
    case Op::index_add: {
      const TensorType *i = c.tensor(2), *s = c.tensor(3);
      if (i && !is_index(i)) return c.refuse();
      auto at = c.dim(1, x->dim());
      if (!is_index(i) || i->dim() > 1 || !s || s->dtype != x->dtype || s->dim() != x->dim() || !at) return std::nullopt;
      for (size_t d = 0; d < x->dim(); ++d)
        if (!c.surely_equal(s->sizes[d], d == *at ? numel(arena, i->sizes) : x->sizes[d])) return c.refuse();
      return like(*x);
    }
    case Op::slice_scatter: case Op::select_scatter: case Op::diagonal_scatter: {
      const TensorType* s = c.tensor(1);
      auto* at = c.op == Op::diagonal_scatter ? nullptr : c.get<Expr>(3);
      if (s && s->dtype == x->dtype && at && (arena.depends_on_data(*at) || arena.depends_on_data(x->offset))) {
        TensorType t = *x;
        t.offset = arena.constant(0);
        return with_strides(std::move(t), preserved_strides(arena, *x, c.context.decide));
      }
      if (!s || s->dtype != x->dtype) return std::nullopt;
      if (auto fits = fits_view(c, *s); fits != true)
        return fits || (all_known(c, *x) && all_known(c, *s)) ? c.refuse() : std::nullopt;
      // Strides are kept, but where elements share memory.
      for (size_t d = 0; d < x->dim(); ++d)
        if (arena.is_const(x->strides[d], 0) && !arena.is_const(x->sizes[d], 1)) {
          TensorType t = *x;
          t.offset = arena.constant(0);
          return with_strides(std::move(t), preserved_strides(arena, *x, c.context.decide));
        }
      if (!is_non_overlapping_and_dense(arena, *x) || !arena.is_const(x->offset, 0)) return std::nullopt;
      return one(*x);
    }
    case Op::embedding_dense_backward: {
      auto* rows = c.get<Expr>(2);
      if (!rows || x->dim() == 0) return std::nullopt;
      return one(c.fresh(*x, x->dtype, {*rows, x->sizes.back()}));
    }
    case Op::slice_backward: case Op::select_backward: {
      auto* sizes = c.get<IntList>(1);
      return sizes ? one(c.fresh(*x, x->dtype, sizes->v)) : std::nullopt;
    }
    case Op::flip: {
      if (!c.dims(1, x->dim())) return std::nullopt;
      TensorType t = *x;
      t.offset = arena.constant(0);
      return with_strides(std::move(t), preserved_strides(arena, *x, c.context.decide));
    }
    case Op::roll: {
      auto *shifts = c.get<IntList>(1), *dims = c.get<IntList>(2);
      if (!shifts || !dims || shifts->v.size() != std::max<size_t>(dims->v.size(), 1)) return std::nullopt;
      if (x->dim() == 0 && !dims->v.empty()) return c.refuse();
      for (Expr d : dims->v)
        if (!wrap_dim(arena.as_const(d).value_or(INT64_MAX), x->dim())) return std::nullopt;
      if (x->dim() > 3) return roll(c, *x);
      for (Expr s : x->sizes)
        if (arena.range(s).lo < 1 && !arena.depends_on_data(s)) return std::nullopt;
      return is_contiguous(arena, *x) ? like(*x) : std::nullopt;
    }
    case Op::repeat: {
      auto* times = c.get<IntList>(1);
      if (!times || times->v.size() < x->dim()) return std::nullopt;
      if (!c.none_negative(times->v)) return c.refuse();
      Sizes sizes = times->v;
      size_t shift = sizes.size() - x->dim();
      for (size_t d = 0; d < x->dim(); ++d) sizes[shift + d] = arena.mul(sizes[shift + d], x->sizes[d]);
      return one(c.fresh(*x, x->dtype, std::move(sizes)));
    }
    // Some other dtypes eager refuses, which is left to its kernels.
    case Op::isin_Tensor_Tensor: case Op::isin_Tensor_Scalar:
      if (!is_integral(x->dtype) && x->dtype != DType::F32 && x->dtype != DType::F64) return std::nullopt;
      if (const TensorType* t = c.tensor(1); t && (t->dtype != x->dtype || t->device != x->device)) return std::nullopt;
      return one(c.fresh(*x, DType::Bool, x->sizes));
    case Op::constant_pad_nd: return pad(c, *x);
    case Op::upsample_bilinear2d: case Op::upsample_linear1d: case Op::upsample_nearest1d: case Op::upsample_nearest3d:
    case Op::_upsample_nearest_exact1d: case Op::_upsample_nearest_exact2d: case Op::_upsample_nearest_exact3d: return resampled(c, *x, false);
    case Op::upsample_nearest2d_backward: case Op::upsample_bilinear2d_backward: return resampled(c, *x, true);
    case Op::tril: case Op::triu: return x->dim() >= 2 ? like(*x) : std::nullopt;
    default: return std::nullopt;
  }
  // clang-format on
}

}  // namespace braze::graph
