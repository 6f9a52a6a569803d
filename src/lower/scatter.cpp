// Operators that change computed places of a tensor: it is copied (or zeroed), then one nest goes over the places.
//
// Places that different outer points change never coincide, so that the outer points stay independent; what may change
// one place twice are the points of the stage, which run in order: sums come out as eager's, and the last write stays.
#include "lower/scatter.h"

#include <algorithm>

#include "base/check.h"

namespace braze::lower {

using graph::Op;
using graph::ValueId;

View start_from(Lowering& low, const graph::Node& node, ValueId from) {
  ValueId out = node.outputs[0];
  View target = low.allocate(out);
  DType to = compute_dtype(target.dtype);
  std::vector<graph::LocId> locs;
  if (from.valid()) locs = low.locs_of(from);
  if (node.loc.valid() && std::find(locs.begin(), locs.end(), node.loc) == locs.end()) locs.push_back(node.loc);
  low.pointwise_nest(low.nest_name(node), target, std::move(locs), [&](Body& b, std::span<const Expr> index) {
    return from.valid() ? b.cast(low.emit(b, from, index), to) : b.constant(int64_t{0}, to);
  });
  return target;
}

void update(Lowering& low, const graph::Node& node, const View& target, std::span<const Expr> apart,
            std::span<const Expr> in_order, bool accumulate, const Change& change) {
  auto axes = [&](std::span<const Expr> sizes, char prefix, std::vector<loop::Axis>& made) {
    std::vector<Expr> index;
    for (Expr size : sizes) {
      bool one = low.indexing.is_one(size);
      index.push_back(one ? low.arena.constant(0) : low.symbols.loop_var(prefix, static_cast<int>(made.size()), size));
      if (!one) made.push_back({index.back(), size});
    }
    return index;
  };
  std::vector<loop::Axis> outer, inner;
  std::vector<Expr> i = axes(apart, 'i', outer), r = axes(in_order, 'r', inner);
  Body body = low.body();
  body.begin_stage(std::move(inner));
  change(body, i, r, [&](std::span<const Expr> at, Val v) {
    body.store(target.buffer, low.indexing.dot(at, target.strides, target.offset), v.id, accumulate);
  });
  std::vector<graph::LocId> locs;
  auto add = [&](graph::LocId l) {
    if (l.valid() && std::find(locs.begin(), locs.end(), l) == locs.end()) locs.push_back(l);
  };
  graph::Graph::for_each_operand(node, [&](ValueId v) {
    for (graph::LocId l : low.locs_of(v)) add(l);
  });
  add(node.loc);
  low.add(body.finish(low.nest_name(node), std::move(outer)), std::move(locs));
}

namespace {

size_t dim_of(const Lowering& low, const graph::Arg& a, size_t rank) {
  int64_t d = low.arena.as_const(std::get<Expr>(a)).value();
  return static_cast<size_t>(d < 0 ? d + static_cast<int64_t>(rank) : d);
}
std::vector<Expr> without(std::span<const Expr> v, size_t d) {
  std::vector<Expr> out(v.begin(), v.end());
  out.erase(out.begin() + static_cast<std::ptrdiff_t>(d));
  return out;
}
std::vector<Expr> with(std::span<const Expr> v, size_t d, Expr e) {
  std::vector<Expr> out(v.begin(), v.end());
  out.insert(out.begin() + static_cast<std::ptrdiff_t>(d), e);
  return out;
}
Val element(Lowering& low, Body& b, ValueId v, std::span<const Expr> at) { return {&b, low.emit(b, v, at)}; }
Val number(Body& b, const graph::Arg& a, DType t) {
  if (auto* d = std::get_if<double>(&a)) return {&b, b.constant(*d, t)};
  if (auto* f = std::get_if<bool>(&a)) return {&b, b.constant(static_cast<int64_t>(*f), t)};
  return {&b, b.index(std::get<Expr>(a), t)};
}

// scatter, scatter_add: (self, dim, index, src); one place per element of the index.
void scatter(Lowering& low, const graph::Node& node) {
  ValueId index = tensor(node, 2);
  const auto& out = sizes(low, node.outputs[0]);
  size_t d = dim_of(low, node.args[1], out.size());
  View target = start_from(low, node, tensor(node, 0));
  DType to = compute_dtype(target.dtype);
  bool accumulate = node.op == Op::scatter_add || node.op == Op::scatter_reduce_two;
  std::vector<Expr> apart = without(sizes(low, index), d);
  Expr along[1] = {sizes(low, index)[d]};
  update(low, node, target, apart, along, accumulate, [&](Body& b, auto i, auto r, const auto& put) {
    std::vector<Expr> at = with(i, d, r[0]);
    auto* src = std::get_if<ValueId>(&node.args[3]);
    Val v = src ? element(low, b, *src, at).to(to) : number(b, node.args[3], to);
    at[d] = checked_index(low, b, node, low.emit(b, index, at), 0);
    put(at, v);
  });
}

// index_add, index_copy, index_fill: (self, dim, index, source or value, alpha); one slice per element of the index.
void slices(Lowering& low, const graph::Node& node) {
  ValueId index = tensor(node, 2);
  const auto& out = sizes(low, node.outputs[0]);
  size_t d = dim_of(low, node.args[1], out.size());
  View target = start_from(low, node, tensor(node, 0));
  DType to = compute_dtype(target.dtype);
  std::vector<Expr> apart = without(out, d);
  update(low, node, target, apart, sizes(low, index), node.op == Op::index_add,
         [&](Body& b, auto i, auto r, const auto& put) {
           std::vector<Expr> at = with(i, d, r.empty() ? low.arena.constant(0) : r[0]);
           auto* source = std::get_if<ValueId>(&node.args[3]);
           Val v = !source                                ? number(b, node.args[3], to)
                   : node.op == Op::index_fill_int_Tensor ? element(low, b, *source, {}).to(to)
                                                          : element(low, b, *source, at).to(to);
           if (node.op == Op::index_add && node.args.size() > 4) {
             auto* alpha = std::get_if<Expr>(&node.args[4]);
             if (!alpha || !low.indexing.is_one(*alpha)) v = v * number(b, node.args[4], to);
           }
           at[d] = checked_index(low, b, node, low.emit(b, index, r), 0);
           put(at, v);
         });
}

// (self, indices, values, accumulate): the indices are broadcast to a block; where they are adjacent, its dimensions
// stand in their place among the values', else in front.
void index_put(Lowering& low, const graph::Node& node) {
  const auto& list = std::get<graph::TensorList>(node.args[1]);
  ValueId values = tensor(node, 2);
  const auto& out = sizes(low, node.outputs[0]);
  std::vector<Expr> block, apart;
  size_t first = 0, last = 0, count = 0;
  for (size_t d = 0; d < out.size(); ++d) {
    if (d >= list.size() || !list[d].valid()) {
      apart.push_back(out[d]);
      continue;
    }
    block = graph::broadcast_sizes(low.arena, block, sizes(low, list[d])).value();
    if (!count++) first = d;
    last = d;
  }
  size_t place = last - first + 1 == count ? first : 0;
  std::vector<Expr> shown = apart;
  shown.insert(shown.begin() + static_cast<std::ptrdiff_t>(place), block.begin(), block.end());
  View target = start_from(low, node, tensor(node, 0));
  DType to = compute_dtype(target.dtype);
  update(low, node, target, apart, block, std::get<bool>(node.args[3]), [&](Body& b, auto i, auto r, const auto& put) {
    std::vector<Expr> from(i.begin(), i.end());
    from.insert(from.begin() + static_cast<std::ptrdiff_t>(place), r.begin(), r.end());
    Val v = Val{&b, low.emit_broadcast(b, values, from, shown)}.to(to);
    std::vector<Expr> at;
    size_t next = 0;
    size_t ordinal = 0;
    for (size_t d = 0; d < out.size(); ++d) {
      bool indexed = d < list.size() && list[d].valid();
      at.push_back(indexed ? checked_index(low, b, node, low.emit_broadcast(b, list[d], r, block), ordinal++)
                           : i[next++]);
    }
    put(at, v);
  });
}

// (grad, indices, rows, padding_idx, scale_grad_by_freq)
void embedding_backward(Lowering& low, const graph::Node& node) {
  ValueId grad = tensor(node, 0), index = tensor(node, 1);
  const auto& out = sizes(low, node.outputs[0]);
  View target = start_from(low, node, {});
  Expr columns[1] = {out[1]};
  Expr padding = std::get<Expr>(node.args[3]);
  update(low, node, target, columns, sizes(low, index), true, [&](Body& b, auto i, auto r, const auto& put) {
    std::vector<Expr> from(r.begin(), r.end());
    from.push_back(i[0]);
    Val v = element(low, b, grad, from), row = element(low, b, index, r);
    if (low.arena.range(padding).hi >= 0) v = where(row == Val{&b, b.index(padding, row.dtype())}, 0.0, v);
    Expr at[2] = {checked_index(low, b, node, row.id, 0), i[0]};
    put(at, v);
  });
}

// (grad, sizes, dim, size, step): grad has one window per place along dim, its elements in the last dimension.
void unfold_backward(Lowering& low, const graph::Node& node) {
  ValueId grad = tensor(node, 0);
  const auto &out = sizes(low, node.outputs[0]), &from = sizes(low, grad);
  size_t d = dim_of(low, node.args[2], out.size());
  Expr step = std::get<Expr>(node.args[4]);
  View target = start_from(low, node, {});
  std::vector<Expr> apart = without(out, d);
  Expr along[2] = {from[d], from.back()};
  update(low, node, target, apart, along, true, [&](Body& b, auto i, auto r, const auto& put) {
    std::vector<Expr> at = with(i, d, r[0]);
    at.push_back(r[1]);
    Val v = element(low, b, grad, at);
    at.pop_back();
    at[d] = low.arena.add(low.arena.mul(r[0], step), r[1]);
    put(at, v);
  });
}

bool integers(const graph::Graph& g, ValueId v) {
  return g.type(v).dtype == DType::I64 || g.type(v).dtype == DType::I32;
}

}  // namespace

bool takes_scatter(const graph::Graph& g, const graph::Node& node) {
  auto rank = [&](size_t i) { return g.type(tensor(node, i)).dim(); };
  DType out = g.type(node.outputs[0]).dtype;
  for (Expr s : g.type(node.outputs[0]).sizes)
    if (g.arena().is_const(s, 0)) return false;  // eager raises, or does nothing
  auto same_dtype = [&](size_t i) { return g.type(tensor(node, i)).dtype == out; };
  switch (node.op) {
    case Op::scatter_reduce_two: {
      auto* how = std::get_if<std::string>(&node.args[4]);
      if (!how || *how != "sum" || !std::get<bool>(node.args[5])) return false;
      [[fallthrough]];
    }
    case Op::scatter_add:
      if (out == DType::Bool) return false;
      [[fallthrough]];
    case Op::scatter_src:
      return rank(0) > 0 && rank(0) == rank(2) && rank(2) == rank(3) && integers(g, tensor(node, 2)) && same_dtype(3);
    case Op::scatter_value: return rank(0) > 0 && rank(0) == rank(2) && integers(g, tensor(node, 2));
    case Op::index_add:
      if (out == DType::Bool) return false;
      [[fallthrough]];
    case Op::index_copy:
      return rank(0) > 0 && rank(2) == 1 && rank(3) == rank(0) && integers(g, tensor(node, 2)) && same_dtype(3);
    case Op::index_fill_int_Scalar: return rank(0) > 0 && rank(2) <= 1 && integers(g, tensor(node, 2));
    case Op::index_fill_int_Tensor: return rank(0) > 0 && rank(2) <= 1 && rank(3) == 0 && integers(g, tensor(node, 2));
    case Op::index_put:
    case Op::_unsafe_index_put: {
      bool any = false;
      for (ValueId v : std::get<graph::TensorList>(node.args[1])) {
        if (v.valid() && !integers(g, v)) return false;
        any |= v.valid();
      }
      return any && same_dtype(2) && !(out == DType::Bool && std::get<bool>(node.args[3]));
    }
    case Op::embedding_dense_backward:
      return integers(g, tensor(node, 1)) && !std::get<bool>(node.args[4]) && g.type(node.outputs[0]).dim() == 2;
    case Op::unfold_backward: return g.type(node.outputs[0]).dim() > 0;
    default: return false;
  }
}

bool lower_scatter(Lowering& low, const graph::Node& node) {
  switch (node.op) {
    case Op::scatter_src:
    case Op::scatter_value:
    case Op::scatter_add:
    case Op::scatter_reduce_two: scatter(low, node); return true;
    case Op::index_add:
    case Op::index_copy:
    case Op::index_fill_int_Scalar:
    case Op::index_fill_int_Tensor: slices(low, node); return true;
    case Op::index_put:
    case Op::_unsafe_index_put: index_put(low, node); return true;
    case Op::embedding_dense_backward: embedding_backward(low, node); return true;
    case Op::unfold_backward: unfold_backward(low, node); return true;
    default: return false;
  }
}

}  // namespace braze::lower
