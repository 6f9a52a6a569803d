// Views as index arithmetic.
#include <algorithm>

#include "base/check.h"
#include "graph/copied_view.h"
#include "lower/rules.h"

namespace braze::lower {

using graph::Op;

namespace {

int64_t as_int(const sym::ExprArena& a, const graph::Arg& arg) {
  auto c = a.as_const(std::get<Expr>(arg));
  BRAZE_CHECK(c.has_value(), "a dimension is a number");
  return *c;
}

int wrap_dim(int64_t d, size_t rank) { return static_cast<int>(d < 0 ? d + static_cast<int64_t>(rank) : d); }

}  // namespace

bool is_view(const graph::Graph& graph, const graph::Node& node) {
  return graph::op_class(node.op) == graph::OpClass::View && !graph::is_copied_view(graph, node);
}

ViewMap view_map(Lowering& low, const graph::Node& node, uint32_t output) {
  sym::ExprArena& a = low.arena;
  const TensorType& from = low.source.type(std::get<graph::ValueId>(node.args[0]));
  const size_t rank = from.sizes.size();
  const Expr zero = a.constant(0), one = a.constant(1);
  ViewMap m;
  auto dims = [&] {
    m.kind = ViewMap::Kind::Dims;
    m.dims.assign(rank, DimMap{zero, {}});
  };
  auto identity = [&] {
    dims();
    for (size_t i = 0; i < rank; ++i) m.dims[i].terms[0] = {static_cast<int>(i), one};
  };
  auto dim_arg = [&](size_t i) { return wrap_dim(as_int(a, node.args[i]), rank); };
  // Result dimensions are the operand's without dimension d.
  auto without = [&](int d) {
    dims();
    for (size_t i = 0, k = 0; i < rank; ++i)
      if (static_cast<int>(i) != d) m.dims[i].terms[0] = {static_cast<int>(k++), one};
  };
  auto squeeze = [&](auto&& drop) {
    dims();
    for (size_t i = 0, k = 0; i < rank; ++i)
      if (!(drop(static_cast<int>(i)) && low.indexing.is_one(from.sizes[i])))
        m.dims[i].terms[0] = {static_cast<int>(k++), one};
  };
  switch (node.op) {
    case Op::alias:
    case Op::detach:
    case Op::lift_fresh: identity(); return m;
    case Op::view:
    case Op::_unsafe_view:
    case Op::reshape:
    case Op::_reshape_alias: m.kind = ViewMap::Kind::Reshape; return m;
    case Op::view_dtype:
      if (size_of(low.source.type(node.outputs[output]).dtype) == size_of(from.dtype)) m.kind = ViewMap::Kind::Bits;
      return m;
    case Op::expand: {
      const auto& to = low.source.type(node.outputs[output]).sizes;
      dims();
      for (size_t i = 0; i < rank; ++i)
        if (!low.indexing.is_one(from.sizes[i])) m.dims[i].terms[0] = {static_cast<int>(i + to.size() - rank), one};
      return m;
    }
    case Op::permute: {
      const auto& order = std::get<graph::IntList>(node.args[1]).v;
      dims();
      for (size_t k = 0; k < order.size(); ++k)
        m.dims[wrap_dim(*a.as_const(order[k]), rank)].terms[0] = {static_cast<int>(k), one};
      return m;
    }
    case Op::transpose_int:
      identity();
      if (rank) std::swap(m.dims[dim_arg(1)].terms[0], m.dims[dim_arg(2)].terms[0]);
      return m;
    case Op::t:
      identity();
      if (rank == 2) std::swap(m.dims[0].terms[0], m.dims[1].terms[0]);
      return m;
    case Op::unsqueeze: {
      int d = wrap_dim(as_int(a, node.args[1]), rank + 1);
      dims();
      for (size_t i = 0; i < rank; ++i) m.dims[i].terms[0] = {static_cast<int>(i) + (static_cast<int>(i) >= d), one};
      return m;
    }
    case Op::squeeze: squeeze([](int) { return true; }); return m;
    case Op::squeeze_dim: {
      int d = rank ? dim_arg(1) : -1;
      squeeze([d](int i) { return i == d; });
      return m;
    }
    case Op::squeeze_dims: {
      std::vector<int> drop;
      for (Expr e : std::get<graph::IntList>(node.args[1]).v) drop.push_back(wrap_dim(*a.as_const(e), rank));
      squeeze([&](int i) { return std::find(drop.begin(), drop.end(), i) != drop.end(); });
      return m;
    }
    case Op::slice_Tensor: {
      int d = dim_arg(1);
      Expr step = std::get<Expr>(node.args[4]);
      Expr size = from.sizes[d], start = zero;
      if (auto* s = std::get_if<Expr>(&node.args[2])) {
        start = *s;
        auto r = a.range(start);
        if (r.hi < 0)
          start = a.max(a.add(start, size), zero);
        else if (r.lo < 0 && !low.indexing.is_zero(start))
          break;  // the sign is not known: by the recorded offset
        if (!(a.known(a.le(start, size)) == true)) start = a.min(start, size);
      }
      identity();
      m.dims[d].start = start;
      m.dims[d].terms[0].step = step;
      m.partial = low.source.type(node.outputs[output]).sizes != from.sizes;
      return m;
    }
    case Op::select_int: {
      int d = dim_arg(1);
      Expr i = std::get<Expr>(node.args[2]);
      auto r = a.range(i);
      if (r.hi < 0)
        i = a.add(i, from.sizes[d]);
      else if (r.lo < 0)
        break;
      without(d);
      m.dims[d].start = i;
      m.partial = !low.indexing.is_one(from.sizes[d]);
      return m;
    }
    case Op::unbind_int: {
      int d = dim_arg(1);
      without(d);
      m.dims[d].start = a.constant(output);
      m.partial = !low.indexing.is_one(from.sizes[d]);
      return m;
    }
    case Op::split_Tensor:
    case Op::split_with_sizes:
    case Op::unsafe_split_Tensor:
    case Op::unsafe_split_with_sizes: {
      int d = dim_arg(2);
      Expr start = zero;
      for (uint32_t k = 0; k < output; ++k) start = a.add(start, low.source.type(node.outputs[k]).sizes[d]);
      identity();
      m.dims[d].start = start;
      m.partial = node.outputs.size() > 1;
      return m;
    }
    case Op::diagonal: {
      int64_t offset = as_int(a, node.args[1]);
      int d1 = dim_arg(2), d2 = dim_arg(3);
      dims();
      int k = 0;
      for (int i = 0; i < static_cast<int>(rank); ++i)
        if (i != d1 && i != d2) m.dims[i].terms[0] = {k++, one};
      m.dims[d1] = {a.constant(std::max<int64_t>(-offset, 0)), {{k, one}, {}}};
      m.dims[d2] = {a.constant(std::max<int64_t>(offset, 0)), {{k, one}, {}}};
      m.partial = true;
      return m;
    }
    case Op::unfold: {
      int d = rank ? dim_arg(1) : -1;
      if (d < 0) break;
      identity();
      m.dims[d].terms[0].step = std::get<Expr>(node.args[3]);
      m.dims[d].terms[1] = {static_cast<int>(rank), one};
      m.partial = true;
      return m;
    }
    default: break;  // as_strided, and whatever has no rule here: by the recorded layout
  }
  return {};
}

ValId load_as(Body& body, DType stored, const View& window, Expr at) {
  const int from = size_of(stored), to = size_of(window.dtype);
  if (from == to) return body.bitcast(body.load(window.buffer, at), window.dtype);
  auto bits_of = [](int size) {
    return size == 1 ? DType::U8 : size == 2 ? DType::I16 : size == 4 ? DType::I32 : DType::I64;
  };
  sym::ExprArena& arena = body.arena();
  if (from > to) {
    Expr ratio = arena.constant(from / to);
    Val whole{&body, body.bitcast(body.load(window.buffer, arena.floordiv(at, ratio)), bits_of(from))};
    Val distance{&body, body.index(arena.mul(arena.mod(at, ratio), arena.constant(8 * to)), whole.dtype())};
    return body.bitcast(binary(OpCode::Shr, whole, distance).to(bits_of(to)).id, window.dtype);
  }
  Val all;
  for (int i = 0; i < to / from; ++i) {
    Expr where = arena.add(arena.mul(at, arena.constant(to / from)), arena.constant(i));
    Val part{&body, body.bitcast(body.load(window.buffer, where), bits_of(from))};
    part = part.to(bits_of(to));
    if (from > 1) part = part & Val{&body, body.constant((int64_t{1} << (8 * from)) - 1, part.dtype())};
    if (i)
      part = binary(OpCode::Shl, part, Val{&body, body.constant(static_cast<int64_t>(8 * from * i), part.dtype())});
    all = i ? all | part : part;
  }
  return body.bitcast(all.id, window.dtype);
}

bool turns(const graph::Graph& g, ValueId u) {
  const graph::Node& copy = g.node(g.value(u).node);
  if (copy.op != graph::Op::clone || g.type(u).device.type != DeviceType::CPU) return false;
  const TensorType &from = g.type(std::get<ValueId>(copy.args[0])), &to = g.type(u);
  for (size_t d = to.sizes.size(); d-- > 0;)
    if (!g.arena().is_const(to.sizes[d], 1))
      return g.arena().is_const(to.strides[d], 1) && !g.arena().is_const(from.strides[d], 1);
  return false;
}

}  // namespace braze::lower
