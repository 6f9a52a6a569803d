#include "graph/shape.h"

#include <algorithm>
#include <limits>

#include "graph/shape_rules.h"

namespace braze::graph {
namespace {

// The rank of dtypes of different categories: a lower-priority operand matters only when its category is higher.
DType combine(std::optional<DType> higher, std::optional<DType> lower, bool& any) {
  any = higher || lower;
  if (!higher) return lower.value_or(DType::Opaque);
  if (!lower) return *higher;
  if (is_complex(*higher)) return *higher;
  if (is_floating(*higher)) {
    if (!is_complex(*lower)) return *higher;
    if (float8(*higher)) return DType::Opaque;
    return *higher == DType::F64 ? DType::C128 : *higher == DType::F16 ? DType::C32 : DType::C64;
  }
  if (*higher == DType::Bool || is_floating(*lower) || is_complex(*lower)) return promote(*higher, *lower);
  return *higher;
}

void merge(std::optional<DType>& into, DType d) { into = into ? promote(*into, d) : d; }

}  // namespace

void Promotion::tensor(const TensorType& type, bool wrapped_number) {
  if (wrapped_number) {
    DType d = type.dtype;
    if (is_floating(d)) d = default_dtype_;
    if (is_complex(d)) d = default_dtype_ == DType::F64 ? DType::C128 : DType::C64;
    merge(wrapped_, d);
  } else {
    merge(type.dim() ? dim_ : zero_, type.dtype);
  }
}

void Promotion::scalar(const Arg& number) {
  if (std::holds_alternative<bool>(number))
    merge(wrapped_, DType::Bool);
  else if (std::holds_alternative<Expr>(number))
    merge(wrapped_, DType::I64);
  else if (std::holds_alternative<double>(number))
    merge(wrapped_, default_dtype_);
}

DType Promotion::result() const {
  bool any = false;
  DType low = combine(zero_, wrapped_, any);
  return combine(dim_, any ? std::optional(low) : std::nullopt, any);
}

std::optional<size_t> wrap_dim(int64_t dim, size_t rank) {
  auto n = static_cast<int64_t>(std::max<size_t>(rank, 1));
  if (dim < -n || dim >= n) return std::nullopt;
  return static_cast<size_t>(dim < 0 ? dim + n : dim);
}

Expr numel(sym::ExprArena& arena, const Sizes& sizes) { return arena.product(sizes); }

std::optional<std::vector<size_t>> Call::dims(size_t i, size_t rank) const {
  std::vector<size_t> out;
  auto list = integers(i);
  if (!list) {
    auto d = dim(i, rank);
    if (!d) return std::nullopt;
    return std::vector<size_t>{*d};
  }
  for (int64_t v : *list) {
    auto d = wrap_dim(v, rank);
    if (!d || std::find(out.begin(), out.end(), *d) != out.end()) return std::nullopt;
    out.push_back(*d);
  }
  return out;
}

std::optional<size_t> Call::dim(size_t i, size_t rank) const {
  auto v = integer(i);
  return v ? wrap_dim(*v, rank) : std::nullopt;
}

std::optional<std::vector<int64_t>> Call::integers(size_t i) const {
  auto* list = get<IntList>(i);
  if (!list) return std::nullopt;
  std::vector<int64_t> out;
  for (Expr e : list->v) {
    auto c = arena().as_const(e);
    if (!c) return std::nullopt;
    out.push_back(*c);
  }
  return out;
}

std::optional<std::vector<int64_t>> Call::specialised(size_t i) const {
  std::vector<Expr> asked;
  if (auto* list = get<IntList>(i))
    asked.assign(list->v.begin(), list->v.end());
  else if (auto* one = get<Expr>(i))
    asked = {*one};
  else
    return std::nullopt;
  std::vector<int64_t> out;
  for (Expr e : asked) {
    auto v = specialised(e);
    if (!v) return std::nullopt;
    out.push_back(*v);
  }
  return out;
}

std::optional<int64_t> Call::specialised(Expr integer) const {
  auto v = arena().as_const(integer);
  return v || !context.decide ? v : context.decide->specialise(integer);
}

std::optional<bool> Call::less(Expr a, Expr b) const {
  auto x = arena().as_const(a), y = arena().as_const(b);
  if (x && y) return *x < *y;
  if (a == b) return false;
  return known(arena().lt(a, b));
}

std::optional<bool> Call::equal(Expr a, Expr b) const {
  if (a == b) return true;
  auto x = arena().as_const(a), y = arena().as_const(b);
  if (x && y) return *x == *y;
  if (context.decide && x == 1) return context.decide->is_one(b);
  if (context.decide && y == 1) return context.decide->is_one(a);
  return known(arena().eq(a, b));
}

std::optional<bool> Call::known(Expr condition) const {
  auto proved = arena().known(condition);
  if (proved || !context.decide) return proved;
  return context.decide->decide(condition);
}

bool Call::require(Expr condition, const sym::Failure& failure) const {
  if (auto truth = known(condition)) return *truth;
  if (!context.decide || !arena().depends_on_data(condition)) return false;
  context.decide->assume(condition, failure);
  return true;
}

std::optional<Expr> Call::one_or_more(Expr size) const {
  if (arena().is_const(size, 1) || arena().range(size).lo > 1 || arena().depends_on_data(size)) return size;
  auto is_one = equal(size, arena().constant(1));
  return is_one ? std::optional(*is_one ? arena().constant(1) : size) : std::nullopt;
}

bool Call::surely_equal(Expr a, Expr b) const {
  if (auto same = equal(a, b)) return *same;
  for (Expr e : {a, b})
    if (auto c = arena().as_const(e); c && (*c == 0 || *c == 1)) return false;
  return require(arena().eq(a, b), {"RuntimeError", "sizes {0} and {1} must be equal", {a, b}});
}

bool Call::at_least(Expr e, int64_t lo) const {
  if (arena().range(e).lo >= lo) return true;
  return arena().depends_on_data(e) &&
         require(arena().le(arena().constant(lo), e),
                 {"RuntimeError", "a size must be at least " + std::to_string(lo) + ", but is {0}", {e}});
}

bool Call::same_sizes(const Sizes& a, const Sizes& b) const {
  if (a.size() != b.size()) return false;
  for (size_t d = 0; d < a.size(); ++d)
    if (!surely_equal(a[d], b[d])) return false;
  return true;
}

bool Call::expands(const Sizes& part, const Sizes& whole) const {
  auto both = broadcast_sizes(arena(), whole, part, context.decide);
  return both && same_sizes(*both, whole);
}

bool Call::none_negative(const Sizes& sizes) const {
  return std::all_of(sizes.begin(), sizes.end(), [&](Expr s) {
    return arena().range(s).lo >= 0 || arena().depends_on_data(s) || less(s, arena().constant(0)) == false;
  });
}

std::optional<Sizes> broadcast_sizes(sym::ExprArena& arena, const Sizes& a, const Sizes& b, Decide decide) {
  const Sizes &longer = a.size() >= b.size() ? a : b, &shorter = a.size() >= b.size() ? b : a;
  Sizes out = longer;
  size_t shift = longer.size() - shorter.size();
  for (size_t d = 0; d < shorter.size(); ++d) {
    Expr &x = out[shift + d], y = shorter[d];
    if (x == y || arena.is_const(y, 1)) continue;
    if (arena.is_const(x, 1)) {
      x = y;
      continue;
    }
    auto cx = arena.as_const(x), cy = arena.as_const(y);
    if (cx && cy) return std::nullopt;
    if (arena.known_equal(x, y)) {
      if (cy) x = y;
      continue;
    }
    if (!decide) return std::nullopt;
    auto equal = cx == 1 ? decide->is_one(y) : cy == 1 ? decide->is_one(x) : decide->decide(arena.eq(x, y));
    if (!equal) {  // a size that only the run knows is not broadcast
      decide->assume(arena.eq(x, y),
                     {"RuntimeError",
                      "The size of tensor a ({0}) must match the size of tensor b ({1}) at non-singleton dimension " +
                          std::to_string(shift + d),
                      {a.size() >= b.size() ? x : y, a.size() >= b.size() ? y : x}});
      equal = true;
    }
    if (*equal) {
      if (cy) x = y;
    } else if (decide->is_one(x) == true) {
      x = y;
    } else if (decide->is_one(y) != true) {
      return std::nullopt;
    }
  }
  return out;
}

std::optional<std::vector<size_t>> sorted_dims(sym::ExprArena& arena, const Sizes& sizes,
                                               const std::vector<const Sizes*>& strides, Decide decide) {
  size_t rank = sizes.size();
  bool known = true;
  auto less = [&](Expr a, Expr b) {
    auto x = arena.as_const(a), y = arena.as_const(b);
    if (x && y) return *x < *y;
    if (a == b) return false;
    auto k = arena.known(arena.lt(a, b));
    if (!k && decide) k = decide->decide(arena.lt(a, b));
    // Strides that may be equal only where a size is 1 are taken for different: such a dimension's place does not
    // matter.
    if (!k && arena.known(arena.le(a, b)) == true) k = true;
    if (!k && decide) k = decide->usually(arena.lt(a, b));
    if (!k) known = false;
    return k.value_or(false);
  };
  // 1: swap, -1: in order, 0: no opinion
  auto should_swap = [&](size_t d0, size_t d1) {
    for (const Sizes* s : strides) {
      Expr s0 = (*s)[d0], s1 = (*s)[d1];
      if (arena.is_const(s0, 0) || arena.is_const(s1, 0)) continue;
      if (less(s0, s1)) return -1;
      if (less(s1, s0)) return 1;
      if (less(sizes[d1], sizes[d0])) return 1;  // equal, be they one expression or two
    }
    return 0;
  };
  std::vector<size_t> perm(rank);
  for (size_t i = 0; i < rank; ++i) perm[i] = rank - 1 - i;
  for (size_t i = 1; i < rank; ++i) {
    size_t d1 = i;
    for (size_t d0 = i; d0-- > 0;) {
      int c = should_swap(perm[d0], perm[d1]);
      if (c > 0) {
        std::swap(perm[d0], perm[d1]);
        d1 = d0;
      } else if (c < 0) {
        break;
      }
    }
  }
  if (!known) return std::nullopt;
  return perm;
}

bool is_non_overlapping_and_dense(sym::ExprArena& arena, const TensorType& t) {
  if (is_contiguous(arena, t)) return true;
  std::vector<size_t> order;
  for (size_t d = 0; d < t.dim(); ++d)
    if (!arena.is_const(t.sizes[d], 1)) order.push_back(d);
  // Each step takes the dimension whose stride is what the faster ones fill.
  Expr expected = arena.constant(1);
  while (!order.empty()) {
    auto it = std::find_if(order.begin(), order.end(), [&](size_t d) { return t.strides[d] == expected; });
    if (it == order.end()) return false;
    expected = arena.mul(expected, t.sizes[*it]);
    order.erase(it);
  }
  return true;
}

namespace {

// The dimensions of channels-last memory from the fastest to the slowest.
std::vector<size_t> channels_last_order(size_t rank) {
  std::vector<size_t> order{1};
  for (size_t d = rank; d-- > 2;) order.push_back(d);
  order.push_back(0);
  return order;
}

std::vector<size_t> contiguous_order(size_t rank) {
  std::vector<size_t> order(rank);
  for (size_t d = 0; d < rank; ++d) order[d] = rank - 1 - d;
  return order;
}

Sizes channels_last_strides(sym::ExprArena& arena, const Sizes& sizes) {
  size_t rank = sizes.size();
  Sizes out(rank);
  Expr step = arena.constant(1);
  for (size_t d : channels_last_order(rank)) {
    // N dimension of an [N, 0, H, W] keeps a stride of at least 1, as in PyTorch.
    out[d] = step;
    if (d == 0) break;
    step = arena.mul(step, arena.is_const(sizes[d], 0) ? arena.constant(1) : sizes[d]);
  }
  return out;
}

using Conditions = std::vector<Expr>;

// What must hold for the dimensions to follow each other densely in this order, from the fastest, beside what is known;
// nullopt: they don't.
std::optional<Conditions> dense_in(sym::ExprArena& arena, const TensorType& t, const std::vector<size_t>& order) {
  Conditions open;
  Expr expected = arena.constant(1);
  for (size_t d : order) {
    if (arena.is_const(t.sizes[d], 1)) continue;
    if (t.strides[d] != expected) {
      Expr same = arena.eq(t.strides[d], expected);
      auto known = arena.known(same);
      if (known == false) return std::nullopt;
      if (!known) open.push_back(same);
    }
    expected = arena.mul(expected, t.sizes[d]);
  }
  return open;
}

bool is_channels_last(sym::ExprArena& arena, const TensorType& t) {
  auto open = t.dim() == 4 ? dense_in(arena, t, channels_last_order(4)) : std::nullopt;
  return open && open->empty();
}

// Whether operands of four or five dimensions, of which some are 1, lie in channels-last order: the dimensions of size
// 1 then have other strides than the general rule gives. What is contiguous as well counts as that.
std::optional<bool> decide_channels_last(sym::ExprArena& arena, const std::vector<const TensorType*>& operands,
                                         Decide decide) {
  Conditions last, contiguous;
  bool may_be_contiguous = true;
  for (const TensorType* t : operands) {
    auto a = dense_in(arena, *t, channels_last_order(t->dim())), b = dense_in(arena, *t, contiguous_order(t->dim()));
    if (!a) return false;
    last.insert(last.end(), a->begin(), a->end());
    may_be_contiguous = may_be_contiguous && b;
    if (b) contiguous.insert(contiguous.end(), b->begin(), b->end());
  }
  auto hold = [&](const Conditions& all) {
    return std::all_of(all.begin(), all.end(), [&](Expr c) { return decide->decide(c) == true; });
  };
  auto implied = [&](Expr c) { return std::find(last.begin(), last.end(), c) != last.end(); };
  if (may_be_contiguous && std::all_of(contiguous.begin(), contiguous.end(), implied)) return false;
  if (last.empty() && !may_be_contiguous) return true;
  if (!decide) return std::nullopt;
  return hold(last) && !(may_be_contiguous && hold(contiguous));
}

}  // namespace

Sizes format_strides(sym::ExprArena& arena, const Sizes& sizes, int8_t format) {
  bool last = (format == 2 && sizes.size() == 4) || (format == 3 && sizes.size() == 5);
  return last ? channels_last_strides(arena, sizes) : contiguous_strides(arena, sizes);
}

std::optional<Sizes> preserved_strides(sym::ExprArena& arena, const TensorType& t, Decide decide) {
  if (is_non_overlapping_and_dense(arena, t)) return t.strides;
  auto perm = sorted_dims(arena, t.sizes, {&t.strides}, decide);
  if (!perm) return std::nullopt;
  Sizes out(t.dim());
  Expr step = arena.constant(1);
  for (size_t d : *perm) {
    out[d] = step;
    if (!arena.is_const(t.sizes[d], 0)) step = arena.mul(step, t.sizes[d]);
  }
  return out;
}

std::optional<Sizes> iterator_strides(sym::ExprArena& arena, const Sizes& sizes,
                                      const std::vector<const TensorType*>& operands, bool with_scalar, Decide decide) {
  size_t rank = sizes.size();
  if (rank == 0) return Sizes{};
  auto all = [&](auto&& test) { return std::all_of(operands.begin(), operands.end(), test); };
  // Beside a number eager asks which sizes are 1, which have no stride that matters: not of sizes that only the run
  // knows.
  auto unknown = [&] { return std::ranges::any_of(sizes, [&](Expr s) { return arena.depends_on_data(s); }); };
  if ((!with_scalar || unknown()) && !operands.empty() && all([&](const TensorType* t) { return t->sizes == sizes; })) {
    if (all([&](const TensorType* t) { return is_contiguous(arena, *t); })) return contiguous_strides(arena, sizes);
    if (all([&](const TensorType* t) { return is_channels_last(arena, *t); }))
      return channels_last_strides(arena, sizes);
    if (all([&](const TensorType* t) { return t->strides == operands[0]->strides; }) &&
        is_non_overlapping_and_dense(arena, *operands[0]))
      return operands[0]->strides;
    if (rank == 4 && std::any_of(sizes.begin(), sizes.end(), [&](Expr s) { return arena.is_const(s, 1); })) {
      auto last = decide_channels_last(arena, operands, decide);
      if (!last) return std::nullopt;
      if (*last) return channels_last_strides(arena, sizes);
    }
  }
  if (rank == 1) return Sizes{arena.constant(1)};
  std::vector<Sizes> expanded;
  expanded.reserve(operands.size());
  for (const TensorType* t : operands) {
    Sizes s(rank, arena.constant(0));
    size_t shift = rank - t->dim();
    for (size_t d = 0; d < t->dim(); ++d) {
      // A dimension of size 1 is broadcast (stride 0) only where the result is wider.
      bool broadcast = arena.is_const(t->sizes[d], 1) && !arena.is_const(sizes[shift + d], 1);
      if (!broadcast) s[shift + d] = t->strides[d];
    }
    expanded.push_back(std::move(s));
  }
  std::vector<const Sizes*> strides;
  for (const Sizes& s : expanded) strides.push_back(&s);
  auto perm = sorted_dims(arena, sizes, strides, decide);
  if (!perm) return std::nullopt;
  bool inverted = true;
  for (size_t i = 0; i < rank; ++i) inverted = inverted && (*perm)[i] == rank - 1 - i;
  if (inverted) return contiguous_strides(arena, sizes);
  Sizes out(rank);
  Expr step = arena.constant(1);
  for (size_t d : *perm) {
    out[d] = step;
    step = arena.mul(step, sizes[d]);
  }
  return out;
}

std::optional<int8_t> suggested_format(const Call& call, const TensorType& t) {
  if (t.dim() != 4 && t.dim() != 5) return int8_t{0};
  sym::ExprArena& arena = call.arena();
  if (arena.is_const(t.strides[1], 0)) return int8_t{0};
  Expr least = arena.constant(0);
  for (size_t d : channels_last_order(t.dim())) {
    auto zero = call.equal(t.sizes[d], arena.constant(0));
    auto below = call.less(t.strides[d], least);
    if (zero == true || below == true) return int8_t{0};
    if (!zero || !below) return std::nullopt;
    if (d == 0) {
      auto ambiguous = call.equal(least, t.strides[1]);
      if (!ambiguous) return std::nullopt;
      if (*ambiguous) return int8_t{0};
    }
    least = t.strides[d];
    if (!arena.is_const(t.sizes[d], 1)) least = arena.mul(least, t.sizes[d]);
  }
  return t.dim() == 4 ? int8_t{2} : int8_t{3};
}

Types resized_planes(const Call& call, const TensorType& t) {
  auto* out = call.get<IntList>(1);
  auto format = suggested_format(call, t);
  if (!out || out->v.size() != 2 || t.dim() != 4 || !format) return std::nullopt;
  TensorType result = call.fresh(t, t.dtype, {t.sizes[0], t.sizes[1], out->v[0], out->v[1]});
  result.strides = format_strides(call.arena(), result.sizes, *format);
  return one(std::move(result));
}

std::optional<bool> lies_channels_last(const Call& call, TensorType t) {
  if (t.dim() != 4 && t.dim() != 5) return false;
  for (Expr& size : t.sizes) {
    auto settled = call.one_or_more(size);
    if (!settled) return std::nullopt;
    size = *settled;
  }
  return decide_channels_last(call.arena(), {&t}, call.context.decide);
}

namespace {

// Arguments that eager's kernels convert to the dtype of the result, with an error for what is out of its range.
struct Numbers {
  size_t first = 0, count = 0;
};
Numbers converted_numbers(Op op) {
  switch (op) {
    case Op::scalar_tensor: return {0, 1};
    case Op::fill_Scalar:
    case Op::full:
    case Op::full_like:
    case Op::clamp_min:
    case Op::clamp_max: return {1, 1};
    case Op::clamp:
    case Op::threshold:
    case Op::where_self:
    case Op::where_Scalar:
    case Op::where_ScalarOther:
    case Op::where_ScalarSelf: return {1, 2};
    case Op::masked_fill_Scalar:
    case Op::new_full:
    case Op::constant_pad_nd:
    case Op::add_Tensor:
    case Op::sub_Tensor: return {2, 1};
    case Op::scatter_value:
    case Op::index_fill_int_Scalar: return {3, 1};
    default: return {};
  }
}

// The integers that eager's kernels convert to that dtype; nothing: all of them.
std::optional<sym::Range> range_of(DType d) {
  switch (d) {
    case DType::U8: return sym::Range{-255, 255};  // negative ones wrap
    case DType::I8: return sym::Range{-128, 127};
    case DType::I16: return sym::Range{-32768, 32767};
    case DType::I32: return sym::Range{std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()};
    case DType::F16: return sym::Range{-65504, 65504};
    default: return std::nullopt;
  }
}

// Whether integers that the run gives are in the range of the result's dtype, in this call and, by a guard, in others.
// Those that are known: trace/number_range.cpp, but for factors.
bool are_in_range(const Call& c, DType result) {
  const Numbers numbers = converted_numbers(c.op);
  auto range = numbers.count ? range_of(result) : std::nullopt;
  if (!range) return true;
  const bool factor = c.op == Op::add_Tensor || c.op == Op::sub_Tensor;
  if (c.op == Op::sub_Tensor) range = sym::Range{-range->hi, -range->lo};  // what is added is negative
  sym::ExprArena& arena = c.arena();
  for (size_t i = numbers.first; i < numbers.first + numbers.count; ++i) {
    auto* e = c.get<Expr>(i);
    if (!e || (arena.as_const(*e) && !factor) || arena.depends_on_data(*e)) continue;
    if (c.less(*e, arena.constant(range->lo)) != false || c.less(arena.constant(range->hi), *e) != false) return false;
  }
  return true;
}

Types types_of(const Call& call) {
  switch (op_row(call.op).result.family) {
    case TypeFamily::Pointwise: return pointwise_types(call);
    case TypeFamily::Reduction: return reduce_types(call);
    case TypeFamily::Scan: return scan_types(call);
    case TypeFamily::View: return view_types(call);
    case TypeFamily::Index: return index_types(call);
    case TypeFamily::Factory: return factory_types(call);
    case TypeFamily::Matmul: return matmul_types(call);
    case TypeFamily::Conv: return conv_types(call);
    case TypeFamily::Attention: return attention_types(call);
    case TypeFamily::Norm: return norm_types(call);
    case TypeFamily::None: break;
  }
  return std::nullopt;
}

}  // namespace

Types infer(Op op, const std::vector<Arg>& args, const ShapeContext& context) {
  Call call{op, args, context};
  Types types = types_of(call);
  if (types && call.recording() && !types->empty() && !are_in_range(call, types->front().dtype)) return call.refuse();
  return types;
}

}  // namespace braze::graph
