// Operators without rows that move elements: views that are copied, turns, diagonals, columns of windows.
#include <algorithm>

#include "passes/builder.h"

namespace braze::passes {
namespace {

// The view of the same arguments, each of its results laid out anew.
void copies(Builder& b, Op view) {
  auto made = b.calls(view, b.args);
  for (size_t k = 0; k < made.size(); ++k)
    if (b.wants(k)) b.set(k, b.call(Op::clone, {made[k], graph::MemoryFormatArg{0}}));
}
template <Op view>
void copy_of(Builder& b) {
  copies(b, view);
}

// (self, sizes, strides, offset): of elements that lie in order. A call raises where it would leave the memory.
void as_strided_copy(Builder& b) {
  const TensorType& x = b.type(b.tensor(0));
  int64_t last = b.integer(3);
  const auto &sizes = b.ints(1), &strides = b.ints(2);
  for (size_t d = 0; d < sizes.size(); ++d) {
    auto size = b.arena().as_const(sizes[d]), stride = b.arena().as_const(strides.at(d));
    if (!size || !stride || *size < 1 || *stride < 0) throw NoRule{};
    last += (*size - 1) * *stride;
  }
  auto all = b.arena().as_const(b.arena().product(x.sizes));
  if (!all || last >= *all || b.integer(3) < 0 || !is_contiguous(b.arena(), x) || !b.arena().is_const(x.offset, 0))
    throw NoRule{};
  copies(b, Op::as_strided);
}

// (self, dim, start, length)
void narrow_copy(Builder& b) {
  int64_t start = b.integer(2), length = b.integer(3);
  size_t d = b.dim(1, b.rank(b.tensor(0)));
  auto size = b.arena().as_const(b.type(b.tensor(0)).sizes[d]);
  if (!size) throw NoRule{};
  if (start < 0) start += *size;
  if (start < 0 || start + length > *size) throw NoRule{};
  b.set(0, b.call(Op::clone, {b.call(Op::slice_Tensor, {b.tensor(0), b.k(static_cast<int64_t>(d)), b.k(start),
                                                        b.k(start + length), b.k(1)}),
                              graph::MemoryFormatArg{0}}));
}

// (self, k, dims): a quarter turn is a mirror and an exchange.
void rot90(Builder& b) {
  ValueId x = b.tensor(0);
  const auto& dims = b.ints(2);
  const auto rank = static_cast<int64_t>(b.rank(x));
  if (dims.size() != 2) throw NoRule{};
  int64_t turns = ((b.integer(1) % 4) + 4) % 4, d[2];
  for (size_t k = 0; k < 2; ++k) {
    auto c = b.arena().as_const(dims[k]);
    if (!c) throw NoRule{};
    d[k] = *c < 0 ? *c + rank : *c;
  }
  auto flip = [&](ValueId v, const std::vector<int64_t>& along) { return b.call(Op::flip, {v, b.list(along)}); };
  auto exchange = [&](ValueId v) { return b.call(Op::transpose_int, {v, b.k(d[0]), b.k(d[1])}); };
  ValueId r = turns == 1 ? exchange(flip(x, {d[1]})) : turns == 3 ? flip(exchange(x), {d[1]}) : x;
  if (turns == 2) r = flip(x, {d[0], d[1]});
  b.set(0, b.call(Op::clone, {r, graph::MemoryFormatArg{0}}));
}

ValueId count_up(Builder& b, Expr n, const TensorType& like) {
  return b.call(Op::arange_start_step, {b.k(0), n, b.k(1), DType::I64, NoneArg{}, like.device, NoneArg{}});
}

// (self, offset, dim1, dim2): element i of the last dimension at row i, column i + offset.
void diag_embed(Builder& b) {
  ValueId x = b.tensor(0);
  const TensorType out = b.result(0);
  const size_t rank = out.dim();
  int64_t offset = b.integer(1);
  size_t d1 = b.dim(2, rank), d2 = b.dim(3, rank);
  b.refuse_complex(x);
  if (d1 == d2) throw NoRule{};
  if (offset < 0) std::swap(d1, d2), offset = -offset;
  Expr size = out.sizes[d1];
  if (offset)
    x = b.call(Op::constant_pad_nd, {x, b.list({0, offset}), out.dtype == DType::Bool ? Arg(false) : Arg(b.k(0))});
  ValueId place = count_up(b, size, out);
  ValueId hit = b.call(Op::eq_Tensor, {b.add(b.unsqueeze(place, 1), b.k(offset)), place});
  const auto last = static_cast<int64_t>(rank) - 1;
  ValueId zero = b.full({}, 0.0, out.dtype, out.device);
  ValueId r = b.where(hit, b.unsqueeze(x, last), zero);
  std::vector<int64_t> order(rank);
  for (size_t d = 0, k = 0; d < rank; ++d) order[d] = d == d1 ? last - 1 : d == d2 ? last : static_cast<int64_t>(k++);
  b.set(0, b.call(Op::permute, {r, b.list(order)}));
}

// (self, indices, output_size, ...): the elements of a plane of n dimensions, put to their places in a larger one.
void max_unpool(Builder& b, size_t n) {
  ValueId x = b.tensor(0), places = b.tensor(1);
  const TensorType& out = b.result(0);
  if (b.rank(x) < n + 1 || b.type(places).dtype != DType::I64) throw NoRule{};
  auto flat = [&](const std::vector<Expr>& sizes) {
    std::vector<Expr> s(sizes.begin(), sizes.end() - static_cast<std::ptrdiff_t>(n));
    s.push_back(b.arena().product(std::span(sizes).last(n)));
    return s;
  };
  for (Expr s : b.type(x).sizes)
    if (!b.arena().as_const(s) || b.arena().is_const(s, 0)) throw NoRule{};
  ValueId empty = b.full(flat(out.sizes), 0.0, out.dtype, out.device);
  const auto last = static_cast<int64_t>(b.rank(x) - n);
  auto plain = [&](ValueId v) {
    return b.view(b.call(Op::clone, {v, graph::MemoryFormatArg{0}}), flat(b.type(v).sizes));
  };
  ValueId r = b.call(Op::scatter_src, {empty, b.k(last), plain(places), plain(x)});
  b.set(0, b.view(r, out.sizes));
}
void max_unpool2d(Builder& b) { max_unpool(b, 2); }
void max_unpool3d(Builder& b) { max_unpool(b, 3); }

// (self, index, source, accumulate): of the flattened tensor.
void put(Builder& b) {
  ValueId x = b.tensor(0), index = b.tensor(1), source = b.tensor(2);
  auto flat = [&](ValueId v) { return b.view(v, {b.arena().product(b.type(v).sizes)}); };
  if (b.type(index).dtype != DType::I64 || b.type(source).dtype != b.type(x).dtype) throw NoRule{};
  // Unlike index_put it does not repeat its source: the call says so.
  auto count = [&](ValueId v) { return b.arena().product(b.type(v).sizes); };
  if (!b.arena().known_equal(count(index), count(source))) throw NoRule{};
  ValueId r = b.call(Op::index_put, {flat(x), TensorList{flat(index)}, flat(source), b.flag(3)});
  b.set(0, b.view(r, b.type(x).sizes));
}

// The indices, none of them beyond its dimension of x.
TensorList inside(Builder& b, ValueId x, const TensorList& list) {
  TensorList out;
  for (size_t d = 0; d < list.size(); ++d) {
    ValueId v = list[d];
    auto size = b.arena().as_const(b.type(x).sizes.at(d));
    if (v.valid() && (!size || *size == 0 || b.type(v).dtype != DType::I64)) throw NoRule{};
    out.push_back(v.valid() ? b.call(Op::clamp, {v, b.k(-*size), b.k(*size - 1)}) : v);
  }
  return out;
}

// (self, mask, indices, fill): what the mask leaves out is not read.
void masked_index(Builder& b) {
  ValueId x = b.tensor(0), mask = b.tensor(1);
  auto* list = std::get_if<TensorList>(&b.args.at(2));
  b.refuse_complex(x);
  if (!list) throw NoRule{};
  ValueId read = b.call(Op::index_Tensor, {x, inside(b, x, *list)});
  b.set(0, b.call(Op::masked_fill_Scalar, {read, b.call(Op::logical_not, {mask}), b.args.at(3)}));
}

// (self, mask, indices, values): what the mask leaves out adds nothing.
void masked_put(Builder& b) {
  ValueId x = b.tensor(0), mask = b.tensor(1), values = b.tensor(3);
  auto* list = std::get_if<TensorList>(&b.args.at(2));
  b.refuse_complex(x);
  if (!list || b.type(values).dtype != b.type(x).dtype) throw NoRule{};
  ValueId added = b.call(Op::masked_fill_Scalar, {values, b.call(Op::logical_not, {mask}), b.k(0)});
  b.set(0, b.call(Op::index_put, {x, inside(b, x, *list), added, true}));
}

// (tensors): matrices along a diagonal, zeros beside them.
void block_diag(Builder& b) {
  auto* list = std::get_if<TensorList>(&b.args.at(0));
  const TensorType out = b.result(0);
  if (!list || is_complex(out.dtype)) throw NoRule{};
  auto width = b.arena().as_const(out.sizes.at(1));
  int64_t before = 0;
  TensorList rows;
  for (ValueId v : *list) {
    std::vector<Expr> sizes = b.type(v).sizes;
    sizes.insert(sizes.begin(), 2 - std::min<size_t>(sizes.size(), 2), b.k(1));
    auto columns = b.arena().as_const(sizes[1]);
    if (!width || !columns || b.arena().is_const(sizes[0], 0)) throw NoRule{};
    ValueId block = b.cast(b.view(v, sizes), out.dtype);
    rows.push_back(b.call(Op::constant_pad_nd, {block, b.list({before, *width - before - *columns}),
                                                out.dtype == DType::Bool ? Arg(false) : Arg(b.k(0))}));
    before += *columns;
  }
  b.set(0, b.call(Op::cat, {rows, b.k(0)}));
}

}  // namespace

std::span<const NamedRule> copy_rules() {
  static constexpr NamedRule kRules[] = {
      {"aten::alias_copy", copy_of<Op::alias>},
      {"aten::detach_copy", copy_of<Op::detach>},
      {"aten::diagonal_copy", copy_of<Op::diagonal>},
      {"aten::expand_copy", copy_of<Op::expand>},
      {"aten::lift_fresh_copy", copy_of<Op::lift_fresh>},
      {"aten::permute_copy", copy_of<Op::permute>},
      {"aten::select_copy.int", copy_of<Op::select_int>},
      {"aten::slice_copy.Tensor", copy_of<Op::slice_Tensor>},
      {"aten::split_copy.Tensor", copy_of<Op::split_Tensor>},
      {"aten::split_with_sizes_copy", copy_of<Op::split_with_sizes>},
      {"aten::squeeze_copy", copy_of<Op::squeeze>},
      {"aten::squeeze_copy.dim", copy_of<Op::squeeze_dim>},
      {"aten::squeeze_copy.dims", copy_of<Op::squeeze_dims>},
      {"aten::t_copy", copy_of<Op::t>},
      {"aten::transpose_copy.int", copy_of<Op::transpose_int>},
      {"aten::unbind_copy.int", copy_of<Op::unbind_int>},
      {"aten::unfold_copy", copy_of<Op::unfold>},
      {"aten::unsqueeze_copy", copy_of<Op::unsqueeze>},
      {"aten::view_copy", copy_of<Op::view>},
      {"aten::view_copy.dtype", copy_of<Op::view_dtype>},
      {"aten::as_strided_copy", as_strided_copy},
      {"aten::_reshape_alias_copy", copy_of<Op::_reshape_alias>},
      {"aten::_unsafe_masked_index_put_accumulate", masked_put},
      {"aten::block_diag", block_diag},
      {"aten::narrow_copy", narrow_copy},
      {"aten::rot90", rot90},
      {"aten::diag_embed", diag_embed},
      {"aten::max_unpool2d", max_unpool2d},
      {"aten::max_unpool3d", max_unpool3d},
      {"aten::put", put},
      {"aten::_unsafe_masked_index", masked_index},
  };
  return kRules;
}

}  // namespace braze::passes
