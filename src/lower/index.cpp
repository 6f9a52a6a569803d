// Reads at computed places: gathers, mirrors, pads, triangles. One element of each.
#include <algorithm>

#include "base/check.h"
#include "lower/rules.h"
#include "lower/scatter.h"

namespace braze::lower {

using graph::Op;
using graph::ValueId;

namespace {

int dim_of(const Point& p, size_t arg, size_t rank) {
  auto d = p.low.arena.as_const(std::get<Expr>(p.arg(arg)));
  BRAZE_CHECK(d.has_value(), "a dimension is a number");
  return static_cast<int>(*d < 0 ? *d + static_cast<int64_t>(rank) : *d);
}

ValueId tensor(const Point& p, size_t arg) { return std::get<ValueId>(p.arg(arg)); }
const std::vector<Expr>& sizes(const Point& p, ValueId v) { return p.low.source.type(v).sizes; }
Val place(const Point& p, Expr e) { return p.wrap(p.body.index(e, DType::I64)); }

// 0 <= e < size as a value; nullopt where it always holds.
std::optional<Val> inside(const Point& p, Expr e, Expr size) {
  if (p.low.indexing.below(e, size)) return std::nullopt;
  Val i = place(p, e);
  return (i >= 0.0) & (i < place(p, size));
}
// A place that is inside for certain: what is read there is not used when e is outside.
Expr clamped(const Point& p, Expr e, Expr size) {
  sym::ExprArena& a = p.low.arena;
  if (p.low.indexing.below(e, size)) return e;
  return a.max(a.min(e, a.sub(size, a.constant(1))), a.constant(0));
}
std::optional<Val> both(std::optional<Val> a, std::optional<Val> b) {
  if (!a || !b) return a ? a : b;
  return *a & *b;
}

// What is read at a place that is clamped, of which it is known where it is inside.
Val clamped_read(const Point& p, ValueId from, std::span<const Expr> at, const std::optional<Val>& in) {
  auto may_be_zero = [&](Expr size) { return p.low.arena.range(size).lo <= 0; };
  if (!in || std::ranges::none_of(sizes(p, from), may_be_zero)) return p.at(from, at);
  Body::UsedWhere scope(p.body, in->id);
  return p.at(from, at);
}

// Of the node's index number k (graph/raises.h).
Expr checked_index(const Point& p, ValId row, size_t k) { return checked_index(p.low, p.body, p.node, row, k); }

Val embedding(const Point& p) {
  ValueId table = tensor(p, 0), rows = tensor(p, 1);
  ValId row = p.low.emit(p.body, rows, p.index.first(sizes(p, rows).size()));
  Expr at[2] = {checked_index(p, row, 0), p.index.back()};
  return p.at(table, at);
}

Val index_select(const Point& p) {
  ValueId from = tensor(p, 0), rows = tensor(p, 2);
  if (p.index.empty()) return p.at(from, p.index);
  int d = dim_of(p, 1, p.index.size());
  std::vector<Expr> at(p.index.begin(), p.index.end());
  bool scalar = sizes(p, rows).empty();
  ValId row = p.low.emit(p.body, rows, scalar ? std::span<const Expr>{} : std::span<const Expr>(&at[d], 1));
  at[d] = checked_index(p, row, 0);
  return p.at(from, at);
}

Val gather(const Point& p) {
  ValueId from = tensor(p, 0), rows = tensor(p, 2);
  ValId row = p.low.emit(p.body, rows, p.index);
  if (sizes(p, from).empty()) return p.at(from, {});
  std::vector<Expr> at(p.index.begin(), p.index.end());
  if (at.empty()) at.push_back(p.low.arena.constant(0));
  int d = dim_of(p, 1, at.size());
  at[d] = checked_index(p, row, 0);
  return p.at(from, at);
}

// Of the flattened tensor.
Val take(const Point& p) {
  ValueId from = tensor(p, 0), places = tensor(p, 1);
  sym::ExprArena& a = p.low.arena;
  Expr whole[1] = {a.product(sizes(p, from))};
  Expr flat[1] = {checked_index(p, p.low.emit(p.body, places, p.index), 0)};
  return p.at(from, p.low.indexing.reshape(flat, whole, sizes(p, from)));
}

// Advanced indexing: the broadcast index tensors' dimensions stand where the first index stood, or in front when the
// indices are not adjacent.
Val index_tensor(const Point& p) {
  ValueId from = tensor(p, 0);
  const auto& list = std::get<graph::TensorList>(p.arg(1));
  const size_t rank = sizes(p, from).size();
  size_t depth = 0;  // dimensions of the broadcast indices
  int first = -1, last = -1, count = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].valid()) continue;
    depth = std::max(depth, sizes(p, list[i]).size());
    if (first < 0) first = static_cast<int>(i);
    last = static_cast<int>(i);
    ++count;
  }
  const size_t start = last - first + 1 == count ? static_cast<size_t>(first) : 0;
  auto where_in_block = p.index.subspan(start, depth);
  const auto& out = p.type().sizes;
  std::vector<Expr> block_sizes(out.begin() + static_cast<long>(start), out.begin() + static_cast<long>(start + depth));
  std::vector<Expr> at(rank);
  size_t next = 0;
  size_t number = 0;
  for (size_t i = 0; i < rank; ++i) {
    if (i < list.size() && list[i].valid()) {
      ValId row = p.low.emit_broadcast(p.body, list[i], where_in_block, block_sizes);
      at[i] = checked_index(p, row, number++);
    } else {
      if (next == start) next += depth;
      at[i] = p.index[next++];
    }
  }
  return p.at(from, at);
}

Val flip(const Point& p) {
  ValueId from = tensor(p, 0);
  std::vector<Expr> at(p.index.begin(), p.index.end());
  sym::ExprArena& a = p.low.arena;
  for (Expr e : std::get<graph::IntList>(p.arg(1)).v) {
    int64_t d = *a.as_const(e);
    if (at.empty()) break;
    if (d < 0) d += static_cast<int64_t>(at.size());
    at[d] = a.sub(a.sub(p.type().sizes[d], a.constant(1)), at[d]);
  }
  return p.at(from, at);
}

Val roll(const Point& p) {
  ValueId from = tensor(p, 0);
  sym::ExprArena& a = p.low.arena;
  const auto& shifts = std::get<graph::IntList>(p.arg(1)).v;
  const auto& dims = std::get<graph::IntList>(p.arg(2)).v;
  std::vector<Expr> at(p.index.begin(), p.index.end());
  if (dims.empty()) {  // of the flattened tensor
    Expr flat = a.constant(0), count = a.constant(1);
    for (size_t d = 0; d < at.size(); ++d)
      flat = a.add(a.mul(flat, p.type().sizes[d]), at[d]), count = a.mul(count, p.type().sizes[d]);
    flat = a.mod(a.sub(flat, shifts[0]), count);
    Expr one[1] = {flat};
    Expr whole[1] = {count};
    return p.at(from, p.low.indexing.reshape(one, whole, p.type().sizes));
  }
  for (size_t k = 0; k < dims.size(); ++k) {
    int64_t d = *a.as_const(dims[k]);
    if (d < 0) d += static_cast<int64_t>(at.size());
    at[d] = a.mod(a.sub(at[d], shifts[k]), p.type().sizes[d]);
  }
  return p.at(from, at);
}

Val repeat(const Point& p) {
  ValueId from = tensor(p, 0);
  const auto& own = sizes(p, from);
  std::vector<Expr> at(own.size());
  size_t skip = p.index.size() - own.size();
  for (size_t d = 0; d < own.size(); ++d) at[d] = p.low.indexing.mod(p.index[d + skip], own[d]);
  return p.at(from, at);
}

Val constant_pad(const Point& p) {
  ValueId from = tensor(p, 0);
  const auto& own = sizes(p, from);
  const auto& pad = std::get<graph::IntList>(p.arg(1)).v;
  std::vector<Expr> at(p.index.begin(), p.index.end());
  std::optional<Val> in;
  for (size_t k = 0; k * 2 + 1 < pad.size(); ++k) {
    size_t d = at.size() - 1 - k;
    Expr e = p.low.arena.sub(at[d], pad[2 * k]);
    if (p.low.indexing.is_zero(own[d])) return p.in(2);
    in = both(in, inside(p, e, own[d]));
    at[d] = clamped(p, e, own[d]);
  }
  Val x = clamped_read(p, from, at, in);
  return in ? where(*in, x, p.in(2)) : x;
}

Val triangle(const Point& p, bool lower) {
  Val x = p.at(tensor(p, 0), p.index);
  size_t n = p.index.size();
  Val row = place(p, p.low.arena.add(p.index[n - 2], std::get<Expr>(p.arg(1)))), column = place(p, p.index[n - 1]);
  Val keep = lower ? column <= row : column >= row;
  return x.boolean() ? keep & x : where(keep, x, 0.0);
}
Val tril(const Point& p) { return triangle(p, true); }
Val triu(const Point& p) { return triangle(p, false); }

// Where the elements start, start + step, ... of dimension d came from: condition, and place in the slice.
struct InSlice {
  std::optional<Val> in;
  Expr at;
};
InSlice in_slice(const Point& p, Expr i, Expr start, Expr step, Expr length) {
  sym::ExprArena& a = p.low.arena;
  Expr shifted = a.sub(i, start), at = a.floordiv(shifted, step);
  InSlice s{inside(p, at, length), clamped(p, at, length)};
  if (!p.low.indexing.is_one(step)) s.in = both(s.in, place(p, a.mod(shifted, step)) == 0.0);
  return s;
}

// The start of a slice, from a schema's optional start; negative counts from the end.
Expr slice_start(const Point& p, size_t arg, Expr size) {
  sym::ExprArena& a = p.low.arena;
  if (p.none(arg)) return a.constant(0);
  Expr s = std::get<Expr>(p.arg(arg));
  if (a.range(s).hi < 0) s = a.max(a.add(s, size), a.constant(0));
  return a.min(s, size);
}

Val slice_scatter(const Point& p) {
  ValueId src = tensor(p, 1);
  int d = dim_of(p, 2, p.index.size());
  Expr length = sizes(p, src)[d];
  Val old = p.in(0);
  if (p.low.indexing.is_zero(length)) return old;
  InSlice s = in_slice(p, p.index[d], slice_start(p, 3, p.type().sizes[d]), std::get<Expr>(p.arg(5)), length);
  std::vector<Expr> at(p.index.begin(), p.index.end());
  at[d] = s.at;
  Val x = clamped_read(p, src, at, s.in).to(p.dtype());
  return s.in ? where(*s.in, x, old) : x;
}

Expr selected(const Point& p, size_t arg, Expr size) {
  Expr i = std::get<Expr>(p.arg(arg));
  return p.low.arena.range(i).hi < 0 ? p.low.arena.add(i, size) : i;
}

std::vector<Expr> without(std::span<const Expr> index, int d) {
  std::vector<Expr> at(index.begin(), index.end());
  at.erase(at.begin() + d);
  return at;
}

Val select_scatter(const Point& p) {
  int d = dim_of(p, 2, p.index.size());
  Val here = place(p, p.index[d]) == place(p, selected(p, 3, p.type().sizes[d]));
  return where(here, p.at(tensor(p, 1), without(p.index, d)).to(p.dtype()), p.in(0));
}

Val slice_backward(const Point& p) {
  ValueId grad = tensor(p, 0);
  int d = dim_of(p, 2, p.index.size());
  Expr length = sizes(p, grad)[d];
  if (p.low.indexing.is_zero(length)) return p.literal(0);
  InSlice s = in_slice(p, p.index[d], slice_start(p, 3, p.type().sizes[d]), std::get<Expr>(p.arg(5)), length);
  std::vector<Expr> at(p.index.begin(), p.index.end());
  at[d] = s.at;
  Val x = clamped_read(p, grad, at, s.in);
  return s.in ? where(*s.in, x, 0.0) : x;
}

Val select_backward(const Point& p) {
  int d = dim_of(p, 2, p.index.size());
  Val here = place(p, p.index[d]) == place(p, selected(p, 3, p.type().sizes[d]));
  return where(here, p.at(tensor(p, 0), without(p.index, d)), 0.0);
}

// Where a diagonal's elements stand: at the place of the smaller of two dimensions' indices, which differ by the
// offset.
Val on_diagonal(const Point& p, ValueId diagonal, size_t offset, Val elsewhere) {
  sym::ExprArena& a = p.low.arena;
  const size_t rank = p.index.size();
  const auto by = *a.as_const(std::get<Expr>(p.arg(offset)));
  const int d1 = dim_of(p, offset + 1, rank), d2 = dim_of(p, offset + 2, rank);
  Expr row = p.index[static_cast<size_t>(d1)], column = p.index[static_cast<size_t>(d2)];
  const auto& own = sizes(p, diagonal);
  if (p.low.indexing.is_zero(own.back())) return elsewhere;
  Val here = place(p, a.add(row, a.constant(by))) == place(p, column);
  std::vector<Expr> at;
  for (size_t d = 0; d < rank; ++d)
    if (static_cast<int>(d) != d1 && static_cast<int>(d) != d2) at.push_back(p.index[d]);
  at.push_back(clamped(p, by >= 0 ? row : column, own.back()));
  return where(here, p.at(diagonal, at).to(p.dtype()), elsewhere);
}
Val diagonal_scatter(const Point& p) { return on_diagonal(p, tensor(p, 1), 2, p.in(0)); }
Val diagonal_backward(const Point& p) { return on_diagonal(p, tensor(p, 0), 2, p.literal(0)); }

}  // namespace

ElementRule index_rule(Op op) {
  switch (op) {
    case Op::embedding: return embedding;
    case Op::index_select: return index_select;
    case Op::gather: return gather;
    case Op::index_Tensor:
    case Op::_unsafe_index_Tensor: return index_tensor;
    case Op::flip: return flip;
    case Op::roll: return roll;
    case Op::repeat: return repeat;
    case Op::constant_pad_nd: return constant_pad;
    case Op::tril: return tril;
    case Op::triu: return triu;
    case Op::slice_scatter: return slice_scatter;
    case Op::select_scatter: return select_scatter;
    case Op::slice_backward: return slice_backward;
    case Op::select_backward: return select_backward;
    case Op::take: return take;
    case Op::diagonal_scatter: return diagonal_scatter;
    case Op::diagonal_backward: return diagonal_backward;
    default: return window_rule(op);
  }
}

bool takes_index(const graph::Graph& g, const graph::Node& node) {
  sym::ExprArena& a = g.arena();
  auto sign_known = [&](size_t i) {
    auto* e = std::get_if<Expr>(&node.args[i]);
    return !e || a.range(*e).lo >= 0 || a.range(*e).hi < 0;
  };
  switch (node.op) {  // from a tensor without elements nothing can be read: eager raises, or gives an empty result
    case Op::embedding:
    case Op::index_select:
    case Op::gather:
    case Op::take:
    case Op::index_Tensor:
    case Op::_unsafe_index_Tensor:
      for (Expr s : g.type(std::get<graph::ValueId>(node.args[0])).sizes)
        if (a.is_const(s, 0)) return false;
      break;
    default: break;
  }
  switch (node.op) {
    case Op::index_Tensor:
    case Op::_unsafe_index_Tensor: {
      bool any = false;
      for (graph::ValueId v : std::get<graph::TensorList>(node.args[1]))
        if (v.valid()) {
          any = true;
          if (!is_integral(g.type(v).dtype) || g.type(v).dtype == DType::U8)
            return false;  // masks: data-dependent sizes
        }
      return any;
    }
    case Op::index_select:
    case Op::gather: {
      const size_t rank = g.type(std::get<graph::ValueId>(node.args[0])).dim();
      // Of no elements at all, ranks may differ.
      return rank > 0 && (node.op == Op::index_select || rank == g.type(std::get<graph::ValueId>(node.args[2])).dim());
    }
    case Op::roll: {
      for (Expr s : g.type(node.outputs[0]).sizes)
        if (a.is_const(s, 0)) return false;
      return !std::get<graph::IntList>(node.args[1]).v.empty();
    }
    case Op::repeat: {
      for (Expr s : g.type(std::get<graph::ValueId>(node.args[0])).sizes)
        if (a.is_const(s, 0)) return false;
      return true;
    }
    case Op::slice_scatter:
    case Op::slice_backward: return sign_known(3);
    case Op::select_scatter:
    case Op::select_backward: return sign_known(3);
    case Op::diagonal_scatter:
    case Op::diagonal_backward: {
      auto* offset = std::get_if<Expr>(&node.args[2]);
      return offset && a.as_const(*offset);
    }
    default: return window_rule(node.op) ? takes_window(g, node) : true;
  }
}

}  // namespace braze::lower
