// Views: sizes, strides and offset over the operand's storage.
#include <algorithm>

#include "graph/shape_rules.h"

namespace braze::graph {
namespace {

// The requested shape with -1 resolved; nullopt when it does not hold as many elements, or that is not provable.
std::optional<Sizes> resolve(const Call& c, const TensorType& x, const Sizes& wanted) {
  sym::ExprArena& arena = c.arena();
  Expr have = numel(arena, x.sizes), rest = arena.constant(1);
  std::optional<size_t> hole;
  for (size_t d = 0; d < wanted.size(); ++d) {
    if (arena.is_const(wanted[d], -1)) {
      if (hole) return std::nullopt;
      hole = d;
    } else {
      if (auto k = arena.as_const(wanted[d]); k && *k < 0) return std::nullopt;
      rest = arena.mul(rest, wanted[d]);
    }
  }
  Sizes out = wanted;
  if (hole) {
    auto h = arena.as_const(have), r = arena.as_const(rest);
    if (r && *r == 0) return std::nullopt;
    if (h && r) {
      if (*h % *r) return std::nullopt;
      out[*hole] = arena.constant(*h / *r);
      return out;
    }
    out[*hole] = arena.floordiv(have, rest);
    if (arena.known_equal(arena.mul(out[*hole], rest), have)) return out;
    if (arena.depends_on_data(rest) &&
        !c.require(arena.ne(rest, arena.constant(0)),
                   {"RuntimeError", "cannot reshape: with a size of 0, what -1 stands for is not determined", {}}))
      return std::nullopt;
    if (!c.require(arena.eq(arena.mod(have, rest), arena.constant(0)),
                   {"RuntimeError", "shape is invalid for input of size {0}", {have}}))
      return std::nullopt;
    return out;
  }
  if (rest != have && !arena.known_equal(rest, have) && !c.surely_equal(rest, have)) return std::nullopt;
  return out;
}

// Whether x keeps its strides when it is viewed with the sizes that it has: dimensions of one get new ones. Where sizes
// are open the general rule may find no proof, and a stride of such a dimension is nobody's.
bool keeps_strides(const sym::ExprArena& arena, const TensorType& x) {
  auto known = [&](Expr e) { return arena.as_const(e).has_value(); };
  return std::none_of(x.sizes.begin(), x.sizes.end(), [&](Expr s) { return arena.is_const(s, 1); }) ||
         !std::all_of(x.sizes.begin(), x.sizes.end(), known) || !std::all_of(x.strides.begin(), x.strides.end(), known);
}

// Groups of x's dimensions that are contiguous among themselves are cut into the new dimensions. Without `ask`,
// dimensions of which that is not known are groups of their own: where the new ones can be cut from those, they have
// the same strides either way. `never`: set where there are no such strides.
std::optional<Sizes> cut(const Call& c, const TensorType& x, const Sizes& sizes, bool ask, bool* never) {
  sym::ExprArena& arena = c.arena();
  auto holds = [&](Expr condition) { return ask ? c.known(condition) : arena.known(condition); };
  Sizes out(sizes.size());
  auto at = static_cast<int64_t>(sizes.size()) - 1;
  Expr chunk_base = x.strides.back(), have = arena.constant(1), made = arena.constant(1);
  for (size_t d = x.dim(); d-- > 0;) {
    have = arena.mul(have, x.sizes[d]);
    bool ends = d == 0;
    if (!ends && !arena.is_const(x.sizes[d - 1], 1)) {
      auto continues = holds(arena.eq(x.strides[d - 1], arena.mul(have, chunk_base)));
      if (!continues && ask) return std::nullopt;
      ends = !continues.value_or(false);
    }
    if (!ends) continue;
    while (at >= 0) {
      Expr s = sizes[static_cast<size_t>(at)];
      bool goes_on;
      if (made == have) {
        goes_on = arena.is_const(s, 1);
      } else if (arena.known(arena.le(made, have)) == true) {
        goes_on = true;  // where they are equal nevertheless, what is left has size 1, and any stride will do
      } else {
        auto below = holds(arena.lt(made, have));
        if (!below) return std::nullopt;
        goes_on = *below || arena.is_const(s, 1);
      }
      if (!goes_on) break;
      out[static_cast<size_t>(at)] = arena.mul(made, chunk_base);
      made = arena.mul(made, s);
      --at;
    }
    if (ask ? !c.surely_equal(made, have) : made != have) {
      *never = ask && c.equal(made, have) == false;
      return std::nullopt;
    }
    if (d > 0) {
      chunk_base = x.strides[d - 1];
      have = made = arena.constant(1);
    }
  }
  if (at != -1) return std::nullopt;
  return out;
}

// Strides under which x's storage shows `sizes`, if there are any.
std::optional<Sizes> view_strides(const Call& c, const TensorType& x, const Sizes& sizes, bool* never) {
  sym::ExprArena& arena = c.arena();
  Expr n = numel(arena, x.sizes);
  if (arena.is_const(n, 0)) return sizes == x.sizes ? x.strides : contiguous_strides(arena, sizes);
  if (arena.range(n).lo < 1 && !arena.depends_on_data(n)) return std::nullopt;
  if (x.dim() == 0) return Sizes(sizes.size(), arena.constant(1));
  if (sizes == x.sizes && keeps_strides(arena, x)) return x.strides;
  auto strides = cut(c, x, sizes, false, never);
  return strides ? strides : cut(c, x, sizes, true, never);
}

TensorType over(const TensorType& x, Sizes sizes, Sizes strides, Expr offset) {
  return TensorType{x.dtype, x.device, std::move(sizes), std::move(strides), offset};
}

Types view(const Call& c, const TensorType& x, const Sizes& wanted) {
  auto sizes = resolve(c, x, wanted);
  if (!sizes) return std::nullopt;
  if (is_contiguous(c.arena(), x)) {
    // The general rule gives the same; this one needs no proofs.
    if (*sizes == x.sizes && keeps_strides(c.arena(), x)) return one(over(x, x.sizes, x.strides, x.offset));
    bool ones = std::any_of(x.sizes.begin(), x.sizes.end(), [&](Expr s) { return c.arena().is_const(s, 1); });
    if (!ones || x.strides == contiguous_strides(c.arena(), x.sizes)) {
      Sizes strides = contiguous_strides(c.arena(), *sizes);
      return one(over(x, std::move(*sizes), std::move(strides), x.offset));
    }
  }
  bool never = false;
  auto strides = view_strides(c, x, *sizes, &never);
  if (!strides && never && c.op == Op::view) return c.refuse();
  if (!strides) return std::nullopt;
  return one(over(x, std::move(*sizes), std::move(*strides), x.offset));
}

Types expand(const Call& c, const TensorType& x, const Sizes& wanted) {
  sym::ExprArena& arena = c.arena();
  if (wanted.size() < x.dim()) return std::nullopt;
  size_t shift = wanted.size() - x.dim();
  Sizes sizes(wanted.size()), strides(wanted.size());
  for (size_t d = wanted.size(); d-- > 0;) {
    Expr w = wanted[d];
    Expr s = d >= shift ? x.sizes[d - shift] : arena.constant(1);
    // A new dimension gets the stride that would continue the one after it; of a number all have 0.
    Expr stride = d >= shift              ? x.strides[d - shift]
                  : x.dim() == 0          ? arena.constant(0)
                  : d + 1 < wanted.size() ? arena.mul(sizes[d + 1], strides[d + 1])
                                          : arena.constant(1);
    if (arena.is_const(w, -1)) {
      if (d < shift) return std::nullopt;
      w = s;
    }
    if (w != s && !c.surely_equal(w, s)) {
      if (!arena.is_const(s, 1)) return std::nullopt;
      if (arena.range(w).lo < 1 && !arena.is_const(w, 0) && !(arena.depends_on_data(w) && c.at_least(w, 0)))
        return std::nullopt;
      s = w;  // where a symbolic target is 1, its stride does not matter
      stride = arena.constant(0);
    }
    sizes[d] = s;
    strides[d] = stride;
  }
  return one(over(x, std::move(sizes), std::move(strides), x.offset));
}

Types permute(const TensorType& x, const std::vector<size_t>& order) {
  if (order.size() != x.dim()) return std::nullopt;
  TensorType t = x;
  for (size_t d = 0; d < order.size(); ++d) {
    t.sizes[d] = x.sizes[order[d]];
    t.strides[d] = x.strides[order[d]];
  }
  return one(std::move(t));
}

Types squeeze(const Call& c, const TensorType& x, const std::vector<bool>& may) {
  TensorType t = over(x, {}, {}, x.offset);
  for (size_t d = 0; d < x.dim(); ++d) {
    Expr one = c.arena().constant(1);
    auto is_one = c.equal(x.sizes[d], one);
    // How many dimensions the result has is not to depend on data.
    if (may[d] && !is_one &&
        c.require(c.arena().ne(x.sizes[d], one),
                  {"RuntimeError",
                   "squeeze: a size that depends on data is 1, but the code was compiled for other sizes",
                   {}}))
      is_one = false;
    if (may[d] && !is_one) return std::nullopt;
    if (may[d] && *is_one) continue;
    t.sizes.push_back(x.sizes[d]);
    t.strides.push_back(x.strides[d]);
  }
  return one(std::move(t));
}

// A bound of slice as PyTorch clamps it into [0, size]; nullopt when not provable.
std::optional<Expr> bound(const Call& c, Expr v, Expr size) {
  sym::ExprArena& arena = c.arena();
  if (arena.is_const(v, INT64_MAX)) return size;
  Expr zero = arena.constant(0);
  bool formula =
      c.context.decide && (arena.depends_on_data(v) || arena.depends_on_data(size));  // of what is not decided
  auto negative = c.less(v, zero);
  if (!negative && !formula) return std::nullopt;
  if (negative != false) v = arena.add(v, negative ? size : arena.mul(size, arena.lt(v, zero)));
  if (negative != false) {
    auto still = c.less(v, zero);
    if (!still && !formula) return std::nullopt;
    if (still == true) return zero;
    if (!still) v = arena.max(v, zero);
  }
  if (negative == true) return v;
  auto above = c.less(size, v);
  if (!above && !formula) return std::nullopt;
  if (!above) return arena.min(size, v);
  return *above ? size : v;
}

Types slice(const Call& c, const TensorType& x) {
  sym::ExprArena& arena = c.arena();
  auto d = c.dim(1, x.dim());
  auto step = c.integer(4);
  if (x.dim() == 0 || !d || !step || *step < 1) return std::nullopt;
  Expr size = x.sizes[*d], start = arena.constant(0), end = size;
  auto read = [&](size_t i, Expr& into) {
    if (c.none(i)) return true;
    auto* e = c.get<Expr>(i);
    auto b = e ? bound(c, *e, size) : std::nullopt;
    if (b) into = *b;
    return b.has_value();
  };
  if (!read(2, start) || !read(3, end)) return std::nullopt;
  auto empty = c.less(end, start);
  if (!empty && !(c.context.decide && (arena.depends_on_data(end) || arena.depends_on_data(start))))
    return std::nullopt;
  if (empty == true) end = start;
  if (!empty) end = arena.max(start, end);
  TensorType t = x;
  t.offset = arena.add(x.offset, arena.mul(start, x.strides[*d]));
  t.sizes[*d] = *step == 1 ? arena.sub(end, start) : arena.ceildiv(arena.sub(end, start), arena.constant(*step));
  t.strides[*d] = arena.mul(x.strides[*d], arena.constant(*step));
  return one(std::move(t));
}

Types select(const Call& c, const TensorType& x) {
  sym::ExprArena& arena = c.arena();
  auto d = c.dim(1, x.dim());
  auto* index = c.get<Expr>(2);
  if (x.dim() == 0 || !d || !index) return std::nullopt;
  Expr i = *index, size = x.sizes[*d];
  auto negative = c.less(i, arena.constant(0));
  bool data = c.context.decide && (arena.depends_on_data(i) || arena.depends_on_data(size));
  if (!negative && !data) return std::nullopt;
  sym::Failure outside{
      "IndexError", "index {0} is out of bounds for dimension " + std::to_string(*d) + " with size {1}", {i, size}};
  if (data) {
    if (negative != true && !c.require(arena.lt(i, size), outside)) return std::nullopt;
    if (negative != false && !c.require(arena.le(arena.neg(size), i), outside)) return std::nullopt;
  }
  if (negative != false) i = arena.add(i, negative ? size : arena.mul(size, arena.lt(i, arena.constant(0))));
  if (!data && (c.less(i, size) != true || c.less(i, arena.constant(0)) != false)) return std::nullopt;
  TensorType t = x;
  t.offset = arena.add(x.offset, arena.mul(i, x.strides[*d]));
  t.sizes.erase(t.sizes.begin() + static_cast<ptrdiff_t>(*d));
  t.strides.erase(t.strides.begin() + static_cast<ptrdiff_t>(*d));
  return one(std::move(t));
}

Types pieces(const Call& c, const TensorType& x, size_t d, const Sizes& lengths) {
  std::vector<TensorType> out;
  Expr at = c.arena().constant(0);
  for (Expr n : lengths) {
    TensorType t = x;
    t.sizes[d] = n;
    t.offset = c.arena().add(x.offset, c.arena().mul(at, x.strides[d]));
    at = c.arena().add(at, n);
    out.push_back(std::move(t));
  }
  if (!c.surely_equal(at, x.sizes[d])) return std::nullopt;
  return out;
}

Types split(const Call& c, const TensorType& x) {
  sym::ExprArena& arena = c.arena();
  auto d = c.dim(2, x.dim());
  if (x.dim() == 0 || !d) return std::nullopt;
  auto* size = c.get<Expr>(1);
  if (!size) return std::nullopt;
  auto total = arena.as_const(x.sizes[*d]), part = arena.as_const(*size);
  Sizes lengths;
  if (total && part) {
    if (*part <= 0 || *total == 0) return std::nullopt;
    for (int64_t at = 0; at < *total; at += *part) lengths.push_back(arena.constant(std::min(*part, *total - at)));
  } else {
    // Symbolic: an exact number of equal pieces, or as many as a guard on the quotient says.
    if (part && *part <= 0) return std::nullopt;
    auto count = arena.as_const(arena.floordiv(x.sizes[*d], *size));
    if (count && *count > 0 && c.surely_equal(arena.mul(arena.constant(*count), *size), x.sizes[*d])) {
      lengths.assign(static_cast<size_t>(*count), *size);
    } else {
      if (!c.context.decide || arena.range(*size).lo < 1) return std::nullopt;
      Expr whole = arena.floordiv(x.sizes[*d], *size), rest = arena.sub(x.sizes[*d], arena.mul(whole, *size));
      int64_t n = 0;
      while (n < 4096 && c.less(whole, arena.constant(n + 1)) != true) ++n;
      if (n == 4096) return std::nullopt;
      lengths.assign(static_cast<size_t>(n), *size);
      rest = arena.sub(x.sizes[*d], arena.mul(arena.constant(n), *size));
      if (c.less(arena.constant(0), rest) == true) lengths.push_back(rest);
    }
  }
  if (lengths.empty()) lengths.push_back(x.sizes[*d]);  // of nothing: one piece
  return pieces(c, x, *d, lengths);
}

Types unbind(const Call& c, const TensorType& x) {
  auto d = c.dim(1, x.dim());
  auto n = x.dim() && d ? c.arena().as_const(x.sizes[*d]) : std::nullopt;
  if (!n) return std::nullopt;
  auto axis = static_cast<ptrdiff_t>(*d);
  auto out = pieces(c, x, *d, Sizes(static_cast<size_t>(*n), c.arena().constant(1)));
  if (out)
    for (TensorType& t : *out) {
      t.sizes.erase(t.sizes.begin() + axis);
      t.strides.erase(t.strides.begin() + axis);
    }
  return out;
}

Types diagonal(const Call& c, const TensorType& x) {
  auto offset = c.integer(1);
  auto d1 = c.dim(2, x.dim()), d2 = c.dim(3, x.dim());
  if (!offset || !d1 || !d2 || *d1 == *d2) return std::nullopt;
  auto s1 = c.arena().as_const(x.sizes[*d1]), s2 = c.arena().as_const(x.sizes[*d2]);
  if (!s1 || !s2) return std::nullopt;
  int64_t n = *offset >= 0 ? std::min(*s1, *s2 - *offset) : std::min(*s1 + *offset, *s2);
  if (n <= 0) return std::nullopt;
  TensorType t = over(x, {}, {}, x.offset);
  Expr along = *offset >= 0 ? x.strides[*d2] : x.strides[*d1];
  t.offset = c.arena().add(x.offset, c.arena().mul(c.arena().constant(std::abs(*offset)), along));
  for (size_t d = 0; d < x.dim(); ++d) {
    if (d == *d1 || d == *d2) continue;
    t.sizes.push_back(x.sizes[d]);
    t.strides.push_back(x.strides[d]);
  }
  t.sizes.push_back(c.arena().constant(n));
  t.strides.push_back(c.arena().add(x.strides[*d1], x.strides[*d2]));
  return one(std::move(t));
}

Types unfold(const Call& c, const TensorType& x) {
  auto d = c.dim(1, x.dim());
  auto size = c.integer(2), step = c.integer(3);
  if (x.dim() == 0 || !d || !size || !step || *step <= 0 || *size < 0) return std::nullopt;
  auto total = c.arena().as_const(x.sizes[*d]);
  if (!total || *total < *size) return std::nullopt;
  TensorType t = x;
  t.sizes.push_back(c.arena().constant(*size));
  t.strides.push_back(x.strides[*d]);
  t.sizes[*d] = c.arena().constant((*total - *size) / *step + 1);
  t.strides[*d] = c.arena().mul(x.strides[*d], c.arena().constant(*step));
  return one(std::move(t));
}

}  // namespace

Types view_types(const Call& c) {
  const TensorType* x = c.tensor(0);
  if (!x) return std::nullopt;
  sym::ExprArena& arena = c.arena();
  size_t rank = x->dim();
  auto* list = c.get<IntList>(1);
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (c.op) {
    case Op::view: case Op::_unsafe_view: case Op::reshape: return list ? view(c, *x, list->v) : std::nullopt;
    case Op::_reshape_alias: {
      auto* strides = c.get<IntList>(2);
      if (!list || !strides) return std::nullopt;
      return one(over(*x, list->v, strides->v, x->offset));
    }
    case Op::view_dtype: {
      auto* d = c.get<DType>(1);
      if (!d || size_of(*d) != size_of(x->dtype)) return std::nullopt;
      TensorType t = *x;
      t.dtype = *d;
      return one(std::move(t));
    }
    case Op::view_as_real: {
      if (x->dtype != DType::C64 && x->dtype != DType::C128) return std::nullopt;
      const Expr two = arena.constant(2);
      TensorType t = *x;
      t.dtype = x->dtype == DType::C64 ? DType::F32 : DType::F64;
      for (Expr& s : t.strides) s = arena.mul(s, two);
      t.sizes.push_back(two);
      t.strides.push_back(arena.constant(1));
      t.offset = arena.mul(x->offset, two);
      return one(std::move(t));
    }
    case Op::expand: return list ? expand(c, *x, list->v) : std::nullopt;
    case Op::permute: {
      auto order = c.dims(1, rank);
      if (!order || (rank == 0 && !order->empty())) return std::nullopt;
      return permute(*x, *order);
    }
    case Op::transpose_int: case Op::t: {
      if (c.op == Op::t && rank > 2) return std::nullopt;
      if (rank == 0 || (c.op == Op::t && rank == 1)) return one(*x);
      auto a = c.op == Op::t ? std::optional<size_t>(0) : c.dim(1, rank), b = c.op == Op::t ? std::optional<size_t>(1) : c.dim(2, rank);
      if (!a || !b) return std::nullopt;
      TensorType t = *x;
      std::swap(t.sizes[*a], t.sizes[*b]);
      std::swap(t.strides[*a], t.strides[*b]);
      return one(std::move(t));
    }
    case Op::unsqueeze: {
      auto d = c.integer(1) ? wrap_dim(*c.integer(1), rank + 1) : std::nullopt;
      if (!d) return std::nullopt;
      TensorType t = *x;
      Expr stride = *d < rank ? arena.mul(x->sizes[*d], x->strides[*d]) : arena.constant(1);
      t.sizes.insert(t.sizes.begin() + static_cast<ptrdiff_t>(*d), arena.constant(1));
      t.strides.insert(t.strides.begin() + static_cast<ptrdiff_t>(*d), stride);
      return one(std::move(t));
    }
    case Op::squeeze: return squeeze(c, *x, std::vector<bool>(rank, true));
    case Op::squeeze_dim: case Op::squeeze_dims: {
      auto dims = c.dims(1, rank);
      if (!dims) return std::nullopt;
      std::vector<bool> may(rank, false);
      for (size_t d : *dims)
        if (d < rank) may[d] = true;
      return squeeze(c, *x, may);
    }
    case Op::slice_Tensor: return slice(c, *x);
    case Op::select_int: return select(c, *x);
    case Op::split_Tensor: case Op::unsafe_split_Tensor: return split(c, *x);
    case Op::split_with_sizes: case Op::unsafe_split_with_sizes: {
      auto d = c.dim(2, rank);
      if (!d || !list || rank == 0) return std::nullopt;
      return pieces(c, *x, *d, list->v);
    }
    case Op::unbind_int: return unbind(c, *x);
    case Op::diagonal: return rank < 2 ? std::nullopt : diagonal(c, *x);
    case Op::as_strided: {
      auto* strides = c.get<IntList>(2);
      if (!list || !strides || list->v.size() != strides->v.size()) return std::nullopt;
      auto* offset = c.get<Expr>(3);
      return one(over(*x, list->v, strides->v, offset ? *offset : x->offset));
    }
    case Op::alias: case Op::detach: case Op::lift_fresh: return one(*x);
    case Op::unfold: return unfold(c, *x);
    default: return std::nullopt;
  }
  // clang-format on
}

}  // namespace braze::graph
