// Small operators that are a few primitive ones.
#include "passes/builder.h"

namespace braze::passes {
namespace {

// Averages over the last `n` dimensions, where each output covers equally many elements.
void adaptive_avg_pool(Builder& b, size_t n) {
  ValueId x = b.tensor(0);
  const auto& out = b.ints(1);
  size_t rank = b.rank(x);
  if (out.size() != n || rank < n + 1) throw NoRule{};
  std::vector<Expr> cut(b.type(x).sizes.begin(), b.type(x).sizes.end() - static_cast<std::ptrdiff_t>(n));
  std::vector<int64_t> dims;
  bool whole = true;
  for (size_t k = 0; k < n; ++k) {
    Expr size = b.type(x).sizes[rank - n + k];
    auto in = b.arena().as_const(size), to = b.arena().as_const(out[k]);
    whole &= to == 1;
    if (to != 1 && (!in || !to || *to <= 0 || *in % *to || *in == 0)) throw NoRule{};
    cut.push_back(out[k]);
    dims.push_back(static_cast<int64_t>(cut.size()));
    cut.push_back(to == 1 ? size : b.k(*in / *to));
  }
  if (whole)
    for (size_t k = 0; k < n; ++k) dims[k] = static_cast<int64_t>(rank - n + k);
  b.set(0, b.mean(whole ? b.compute(x) : b.view(b.compute(x), std::move(cut)), dims, whole));
}
void adaptive_avg_pool2d(Builder& b) { adaptive_avg_pool(b, 2); }
void adaptive_avg_pool3d(Builder& b) { adaptive_avg_pool(b, 3); }

// Each element gets an equal share of its output's gradient.
void adaptive_avg_pool_backward(Builder& b, size_t n) {
  ValueId grad = b.compute(b.tensor(0));
  const auto& sizes = b.result(0).sizes;
  size_t rank = b.rank(grad);
  std::vector<Expr> seen(sizes.begin(), sizes.end() - static_cast<std::ptrdiff_t>(n)), spread = seen;
  int64_t area = 1;
  bool whole = true;
  for (size_t k = 0; k < n; ++k) {
    auto in = b.arena().as_const(sizes[rank - n + k]), to = b.arena().as_const(b.type(grad).sizes[rank - n + k]);
    if (!in || !to || *to <= 0 || *in == 0 || *in % *to) throw NoRule{};
    whole &= *to == 1;
    area *= *in / *to;
    seen.insert(seen.end(), {b.k(*to), b.k(1)});
    spread.insert(spread.end(), {b.k(*to), b.k(*in / *to)});
  }
  grad = b.div(grad, static_cast<double>(area));
  if (whole) return b.set(0, b.call(Op::expand, {grad, IntList{sizes}, false}));
  ValueId each = b.call(Op::expand, {b.view(grad, std::move(seen)), IntList{std::move(spread)}, false});
  b.set(0, b.view(b.call(Op::clone, {each, graph::MemoryFormatArg{0}}), sizes));
}
void adaptive_avg_pool2d_backward(Builder& b) { adaptive_avg_pool_backward(b, 2); }
void adaptive_avg_pool3d_backward(Builder& b) { adaptive_avg_pool_backward(b, 3); }

// A view as `cut`, its dimensions in another order, laid out anew and seen as the result's sizes.
void rearrange(Builder& b, ValueId x, std::vector<Expr> cut, const std::vector<int64_t>& order) {
  ValueId v = b.call(Op::permute, {b.view(x, std::move(cut)), b.list(order)});
  b.set(0, b.view(b.call(Op::clone, {v, graph::MemoryFormatArg{0}}), b.result(0).sizes));
}

std::vector<int64_t> first(size_t n) {
  std::vector<int64_t> v;
  for (size_t k = 0; k < n; ++k) v.push_back(static_cast<int64_t>(k));
  return v;
}

void pixel_shuffle(Builder& b) {  // [..., C * r * r, H, W] -> [..., C, H * r, W * r]
  ValueId x = b.tensor(0);
  Expr r = b.k(b.integer(1));
  const auto &in = b.type(x).sizes, &out = b.result(0).sizes;
  size_t n = in.size() - 3;
  std::vector<Expr> cut(in.begin(), in.end() - 3);
  cut.insert(cut.end(), {out[n], r, r, in[n + 1], in[n + 2]});
  auto order = first(n);
  for (int64_t k : {0, 3, 1, 4, 2}) order.push_back(static_cast<int64_t>(n) + k);
  rearrange(b, x, std::move(cut), order);
}

void pixel_unshuffle(Builder& b) {  // the inverse
  ValueId x = b.tensor(0);
  Expr r = b.k(b.integer(1));
  const auto &in = b.type(x).sizes, &out = b.result(0).sizes;
  size_t n = in.size() - 3;
  std::vector<Expr> cut(in.begin(), in.end() - 3);
  cut.insert(cut.end(), {in[n], out[n + 1], r, out[n + 2], r});
  auto order = first(n);
  for (int64_t k : {0, 2, 4, 1, 3}) order.push_back(static_cast<int64_t>(n) + k);
  rearrange(b, x, std::move(cut), order);
}

void channel_shuffle(Builder& b) {
  ValueId x = b.tensor(0);
  int64_t groups = b.integer(1);
  std::vector<Expr> cut = b.type(x).sizes;
  auto channels = cut.size() < 3 ? std::nullopt : b.arena().as_const(cut[1]);
  if (!channels || groups < 1 || *channels % groups) throw NoRule{};
  cut[1] = b.k(groups);
  cut.insert(cut.begin() + 2, b.k(*channels / groups));
  auto order = first(cut.size());
  std::swap(order[1], order[2]);
  rearrange(b, x, std::move(cut), order);
}

// beta * self + alpha * outer(a, b)
void addr(Builder& b) {
  ValueId self = b.tensor(0), x = b.compute(b.tensor(1)), y = b.compute(b.tensor(2));
  if (!is_floating(b.result(0).dtype) || b.type(self).dtype != b.result(0).dtype || b.type(x).dtype != b.type(y).dtype)
    throw NoRule{};
  double beta = b.number(3), alpha = b.number(4);
  ValueId r = b.mul(b.unsqueeze(x, 1), y);
  if (alpha != 1) r = b.mul(r, alpha);
  if (beta != 0) r = b.add(r, beta == 1 ? b.compute(self) : b.mul(b.compute(self), beta));
  b.set(0, r);
}

void trace(Builder& b) {
  b.set(0, b.call(Op::sum, {b.call(Op::diagonal, {b.tensor(0), b.k(0), b.k(0), b.k(1)}), NoneArg{}}));
}

void zero(Builder& b) { b.set(0, b.full(b.result(0).sizes, b.k(0), b.result(0).dtype, b.result(0).device)); }

// (self, kernel_size, dilation, padding, stride): windows over the two last dimensions, one column each.
void im2col(Builder& b) {
  ValueId x = b.tensor(0);
  const auto& out = b.result(0).sizes;
  size_t rank = b.rank(x);
  int64_t kernel[2], dilation[2], padding[2], stride[2];
  auto read = [&](size_t arg, int64_t* into) {
    const auto& list = b.ints(arg);
    if (list.size() != 2) throw NoRule{};
    for (size_t k = 0; k < 2; ++k) {
      auto c = b.arena().as_const(list[k]);
      if (!c) throw NoRule{};
      into[k] = *c;
    }
  };
  read(1, kernel), read(2, dilation), read(3, padding), read(4, stride);
  if (rank < 3) throw NoRule{};
  for (Expr s : b.type(x).sizes)
    if (!b.arena().as_const(s) || b.arena().is_const(s, 0)) throw NoRule{};
  if (padding[0] || padding[1])
    x = b.call(Op::constant_pad_nd, {x, b.list({padding[1], padding[1], padding[0], padding[0]}),
                                     b.type(x).dtype == DType::Bool ? Arg(false) : Arg(b.k(0))});
  for (size_t k = 0; k < 2; ++k) {
    auto d = static_cast<int64_t>(rank - 2 + k);
    x = b.call(Op::unfold, {x, b.k(d), b.k((kernel[k] - 1) * dilation[k] + 1), b.k(stride[k])});
    if (dilation[k] > 1)
      x = b.call(Op::slice_Tensor, {x, b.k(static_cast<int64_t>(rank + k)), b.k(0), NoneArg{}, b.k(dilation[k])});
  }
  auto order = first(rank - 2);
  for (size_t k : {rank, rank + 1, rank - 2, rank - 1}) order.push_back(static_cast<int64_t>(k));
  b.set(0, b.view(b.call(Op::clone, {b.call(Op::permute, {x, b.list(order)}), graph::MemoryFormatArg{0}}), out));
}

// (self, dim, keepdim): over no dimensions it is each element's truth, where PyTorch's version does not take that for
// all.
void truth_along(Builder& b) {
  ValueId x = b.tensor(0);
  if (!b.ints(1).empty() || b.type(x).sizes != b.result(0).sizes) throw NoRule{};
  b.set(0, b.cast(b.call(Op::ne_Scalar, {x, b.k(0)}), b.result(0).dtype));
}

void count_nonzero(Builder& b) {
  ValueId x = b.tensor(0), there = b.call(Op::ne_Scalar, {x, b.k(0)});
  bool all = std::holds_alternative<NoneArg>(b.args.at(1));
  if (b.rank(x) == 0) return b.set(0, b.cast(there, DType::I64));
  b.set(0,
        b.sum(there, all ? first(b.rank(x)) : std::vector<int64_t>{static_cast<int64_t>(b.dim(1, b.rank(x)))}, false));
}

// self[mask] = values: a choice per element where the values do not depend on how many elements the mask picks.
void index_put(Builder& b) {
  ValueId self = b.tensor(0), values = b.tensor(2), mask;
  auto* list = std::get_if<TensorList>(&b.args.at(1));
  size_t before = 0, picked = 0;
  for (size_t d = 0; list && d < list->size(); ++d) {
    if (!(*list)[d].valid()) continue;
    ++picked;
    before = d;
    mask = (*list)[d];
  }
  if (picked != 1 || b.type(mask).dtype != DType::Bool || b.flag(3) || b.type(values).dtype != b.type(self).dtype)
    throw NoRule{};
  size_t after = b.rank(self) - before - b.rank(mask);
  if (b.rank(values) > after) {
    if (b.rank(values) != after + 1 || !b.arena().is_const(b.type(values).sizes[0], 1)) throw NoRule{};
    values = b.call(Op::squeeze_dim, {values, b.k(0)});
  }
  for (size_t k = 0; k < after; ++k) mask = b.unsqueeze(mask, static_cast<int64_t>(b.rank(mask)));
  b.set(0, b.where(mask, values, self));
}

void glu_backward(Builder& b) {
  ValueId grad = b.compute(b.tensor(0)), x = b.tensor(1);
  size_t d = b.dim(2, b.rank(x));
  auto n = b.arena().as_const(b.type(x).sizes.at(d));
  if (!n || *n % 2) throw NoRule{};
  auto part = [&](int64_t from, int64_t to) {
    return b.compute(b.call(Op::slice_Tensor, {x, b.k(static_cast<int64_t>(d)), b.k(from), b.k(to), b.k(1)}));
  };
  ValueId gate = b.unary(Op::sigmoid, part(*n / 2, *n));
  ValueId left = b.mul(gate, grad);
  ValueId right = b.mul(b.mul(b.mul(b.call(Op::rsub_Scalar, {gate, b.k(1), b.k(1)}), gate), grad), part(0, *n / 2));
  b.set(0, b.cast(b.call(Op::cat, {TensorList{left, right}, b.k(static_cast<int64_t>(d))}), b.result(0).dtype));
}

void dropout_without_training(Builder& b) {
  auto* train = std::get_if<bool>(&b.args.at(2));
  if (!train || *train) throw NoRule{};
  b.set(0, b.call(Op::clone, {b.tensor(0), NoneArg{}}));
  if (b.wants(1)) b.set(1, b.full(b.result(1).sizes, true, DType::Bool, b.result(1).device));
}

void glu(Builder& b) {
  ValueId x = b.tensor(0);
  size_t d = b.dim(1, b.rank(x));
  auto n = b.arena().as_const(b.type(x).sizes.at(d));
  if (!n || *n % 2) throw NoRule{};
  auto part = [&](int64_t from, int64_t to) {
    return b.compute(b.call(Op::slice_Tensor, {x, b.k(static_cast<int64_t>(d)), b.k(from), b.k(to), b.k(1)}));
  };
  b.set(0, b.mul(part(0, *n / 2), b.unary(Op::sigmoid, part(*n / 2, *n))));
}

void fill(Builder& b) {
  if (auto* v = std::get_if<ValueId>(&b.args.at(1))) {
    if (b.rank(*v) != 0 || b.type(*v).device != b.result(0).device) throw NoRule{};
    ValueId value = b.cast(*v, b.result(0).dtype);
    b.set(0, b.call(Op::clone,
                    {b.call(Op::expand, {value, IntList{b.result(0).sizes}, false}), graph::MemoryFormatArg{0}}));
  } else {
    b.set(0, b.full(b.result(0).sizes, b.args.at(1), b.result(0).dtype, b.result(0).device));
  }
}

// (self, dim, index, source, ...) of half types on a CPU: eager adds all that goes to one element up in float. A GPU's
// additions to memory round each.
void add_halves(Builder& b) {
  const TensorType& out = b.result(0);
  ValueId self = b.tensor(0), source = b.tensor(3);
  const bool sum = b.node.op != Op::scatter_reduce_two || std::get<std::string>(b.args.at(4)) == "sum";
  if (compute_dtype(out.dtype) == out.dtype || out.device.type != DeviceType::CPU || !sum ||
      b.type(source).dtype != out.dtype)
    throw NoRule{};
  std::vector<Arg> args = b.args;
  args[0] = b.compute(self);
  args[3] = b.compute(source);
  b.set(0, b.call(b.node.op, std::move(args)));
}

// Tensors of sizes [0] count for the dtype alone.
void cat(Builder& b) {
  auto* list = std::get_if<TensorList>(&b.args.at(0));
  if (!list) throw NoRule{};
  TensorList rest;
  for (ValueId v : *list)
    if (b.rank(v) != 1 || !b.arena().is_const(b.type(v).sizes[0], 0)) rest.push_back(b.cast(v, b.result(0).dtype));
  if (rest.empty() && !list->empty())
    return b.set(0, b.full(b.result(0).sizes, 0.0, b.result(0).dtype, b.result(0).device));
  if (rest.empty() || (rest.size() == list->size() && rest.size() > 1)) throw NoRule{};
  b.set(0, rest.size() == 1 ? b.call(Op::clone, {rest[0], graph::MemoryFormatArg{0}})
                            : b.call(Op::cat, {rest, b.args.at(1)}));
}

}  // namespace

DecomposeRule misc_rule(Op op) {
  switch (op) {
    case Op::cat: return cat;
    case Op::scatter_add:
    case Op::index_add:
    case Op::scatter_reduce_two: return add_halves;
    case Op::_adaptive_avg_pool2d: return adaptive_avg_pool2d;
    case Op::native_dropout: return dropout_without_training;
    case Op::_adaptive_avg_pool3d: return adaptive_avg_pool3d;
    case Op::_adaptive_avg_pool2d_backward: return adaptive_avg_pool2d_backward;
    case Op::_adaptive_avg_pool3d_backward: return adaptive_avg_pool3d_backward;
    case Op::pixel_shuffle: return pixel_shuffle;
    case Op::pixel_unshuffle: return pixel_unshuffle;
    case Op::channel_shuffle: return channel_shuffle;
    case Op::addr: return addr;
    case Op::trace: return trace;
    case Op::zero: return zero;
    case Op::im2col: return im2col;
    case Op::count_nonzero: return count_nonzero;
    case Op::any_dims:
    case Op::all_dims: return truth_along;
    case Op::index_put:
    case Op::_unsafe_index_put: return index_put;
    case Op::glu_backward: return glu_backward;
    case Op::glu: return glu;
    case Op::fill_Scalar:
    case Op::fill_Tensor: return fill;
    default: return nullptr;
  }
}

}  // namespace braze::passes
