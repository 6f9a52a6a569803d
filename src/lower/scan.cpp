// Scans: one nest, the other dimensions outside, the scanned one the axis of its stage. On CPUs: a GPU's points are not
// to come one after the other, and PyTorch's scan there is a parallel one.
#include "lower/rules.h"

namespace braze::lower {

using graph::Op;

namespace {

struct Scanner {
  Body& body;
  bool alone;  // a single element

  Val operator()(ReduceKind kind, Val v) const { return alone ? v : Val{&body, body.scan(kind, v.id)}; }
};

// As eager's kernels, sums and products of float32 are taken in float64; so are sums of exponentials, whose gradients
// take what was lost for small terms.
Val total(const Scanner& scan, ReduceKind kind, Val x) {
  return scan(kind, x.dtype() == DType::F32 ? x.to(DType::F64) : x);
}

// The greatest (or least) so far, NaN once there was one, and where it was last met.
std::vector<Val> extreme_so_far(const Scanner& scan, ReduceKind kind, Val x, Val place) {
  if (x.boolean()) x = x.to(DType::U8);
  const Val best = scan(kind, x);
  Val met = x == best;
  if (x.floating()) met = met + isnan(x);
  return {best, scan(ReduceKind::Max, where(met, place, place.same(0))).to(DType::I64)};
}

std::optional<size_t> scanned(const graph::Graph& g, const graph::Node& node) {
  const size_t rank = g.type(tensor(node, 0)).dim();
  auto* dim = std::get_if<Expr>(&node.args.at(1));
  auto d = dim ? g.arena().as_const(*dim) : std::nullopt;
  if (!d || !rank) return std::nullopt;
  return static_cast<size_t>(*d < 0 ? *d + static_cast<int64_t>(rank) : *d);
}

}  // namespace

bool takes_scan(const graph::Graph& g, const graph::Node& node) {
  switch (node.op) {
    case Op::cumsum:
    case Op::cumprod:
    case Op::logcumsumexp:
    case Op::cummax:
    case Op::cummin: break;
    default: return false;
  }
  const TensorType& x = g.type(tensor(node, 0));
  const bool floats = node.op != Op::logcumsumexp || is_floating(x.dtype);
  const bool extremes = node.op == Op::cummax || node.op == Op::cummin;
  for (graph::ValueId v : node.outputs)  // of bool eager has no sums
    if (!extremes && v.valid() && g.type(v).dtype == DType::Bool) return false;
  return x.device.type == DeviceType::CPU && floats && scanned(g, node).has_value();
}

bool lower_scan(Lowering& low, graph::NodeId n) {
  const graph::Node& node = low.source.node(n);
  const graph::ValueId operand = tensor(node, 0);
  const std::vector<Expr>& from = sizes(low, operand);
  const size_t d = *scanned(low.source, node);
  std::vector<View> targets;
  for (graph::ValueId v : node.outputs) targets.push_back(v.valid() && !low.unused(v) ? low.allocate(v) : View{});
  const View* shaped = nullptr;
  for (const View& t : targets)
    if (t.buffer.valid() && !shaped) shaped = &t;
  if (!shaped) return true;

  std::vector<Expr> others = from, strides = shaped->strides, index;
  others.erase(others.begin() + static_cast<long>(d));
  strides.erase(strides.begin() + static_cast<long>(d));
  std::vector<loop::Axis> outer = low.axes(others, strides, index), inner;
  Expr along = low.arena.constant(0);
  if (!low.indexing.is_one(from[d])) {
    along = low.symbols.loop_var('r', 0, from[d]);
    inner.push_back({along, from[d]});
  }
  index.insert(index.begin() + static_cast<long>(d), along);

  Body body = low.body();
  const Scanner scan{body, inner.empty()};
  body.begin_stage(std::move(inner));
  const DType out = compute_dtype(low.source.type(node.outputs[0].valid() ? node.outputs[0] : operand).dtype);
  // Not every CPU compares 64 bits in vectors.
  const DType narrow = low.arena.range(from[d]).hi < INT32_MAX ? DType::I32 : DType::I64;
  const Val x{&body, low.emit(body, operand, index)}, place{&body, body.index(along, narrow)};
  std::vector<Val> values;
  switch (node.op) {
    case Op::cumsum: values = {total(scan, ReduceKind::Sum, x.to(out))}; break;
    case Op::cumprod: values = {total(scan, ReduceKind::Prod, x.to(out))}; break;
    case Op::logcumsumexp: values = {total(scan, ReduceKind::LogAdd, x.to(out))}; break;
    case Op::cummax: values = extreme_so_far(scan, ReduceKind::Max, x, place); break;
    default: values = extreme_so_far(scan, ReduceKind::Min, x, place); break;
  }
  for (size_t i = 0; i < targets.size(); ++i)
    if (targets[i].buffer.valid())
      body.store(targets[i].buffer, low.indexing.dot(index, targets[i].strides, targets[i].offset), values[i].id);
  std::vector<graph::LocId> locs = low.locs_of(operand);
  if (node.loc.valid()) locs.push_back(node.loc);
  low.add(body.finish(low.nest_name(node), std::move(outer)), std::move(locs));
  return true;
}

}  // namespace braze::lower
