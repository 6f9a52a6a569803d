#include "graph/depthwise.h"

#include <algorithm>

#include "graph/convolution.h"

namespace braze::graph {
namespace {

constexpr int64_t kMostTaps = 256, kMostTapsOfRow = 16, kMostStrideOfPlanes = 4;
constexpr int64_t kFewestOfRow = 12;  // of planes: a row is copied at a cost of its own

// One or two constants.
bool is_known(const Graph& g, const IntList& list) {
  return !list.v.empty() && list.v.size() <= 2 &&
         std::ranges::all_of(list.v, [&](sym::Expr e) { return g.arena().as_const(e).has_value(); });
}

constexpr int64_t kSmallImage = 128 << 10;  // elements that are copied in less time than the library takes to begin

// Whether one node alone reads it.
bool has_one_reader(const Graph& g, ValueId v) {
  size_t readers = static_cast<size_t>(std::ranges::count(g.outputs, v));
  for (const Writeback& w : g.writebacks) readers += w.value == v;
  for (const Node& n : g.nodes()) {
    Graph::for_each_operand(n, [&](ValueId operand) { readers += operand == v; });
    if (readers > 1) return false;
  }
  return readers == 1;
}

bool pays_on_cpu(const Graph& g, const Node& n) {
  const ValueId image = std::get<ValueId>(n.args[0]);
  const TensorType& x = g.type(image);
  if (x.dtype != DType::F32) return false;
  if (NodeId made = g.value(image).node;
      made.valid() && op_class(g.node(made).op) == OpClass::Pointwise && has_one_reader(g, image))
    return true;
  int64_t elements = 1;
  for (sym::Expr e : x.sizes) {
    auto size = g.arena().as_const(e);
    if (!size || *size > kSmallImage) return false;
    elements *= *size;
  }
  return elements <= kSmallImage;
}

}  // namespace

bool is_depthwise(const Graph& g, const Node& n, const Targets& targets) {
  auto c = convolution_of(g, n);
  if (!c) return false;
  const TensorType &x = *c->x, &w = *c->weight, &out = *c->result;
  const Target& target = targets.of(out.device);
  if (!(target.is_gpu() ? target.slow_depthwise : target.strips)) return false;
  if (out.dtype != DType::F32 && out.dtype != DType::F16 && out.dtype != DType::BF16) return false;
  if (!is_known(g, *c->stride) || !is_known(g, *c->padding) || !is_known(g, *c->dilation)) return false;
  const sym::ExprArena& a = g.arena();
  auto channels = a.as_const(out.sizes[1]), high = a.as_const(w.sizes[2]), wide = a.as_const(w.sizes[3]);
  if (!channels || *channels < 2 || !a.is_const(c->groups, *channels) || !a.is_const(x.sizes[1], *channels))
    return false;
  if (!a.is_const(w.sizes[1], 1) || !a.as_const(out.sizes[3])) return false;
  const bool fits = high && wide && *high >= 1 && *wide >= 1 && *wide <= kMostTapsOfRow && *high <= kMostTaps / *wide &&
                    *high * *wide > 1;
  return fits && (target.is_gpu() || pays_on_cpu(g, n));
}

bool is_depthwise_kernel(const Graph& g, const Node& n, const Targets& targets) {
  if (!is_depthwise(g, n, targets)) return false;
  const Convolution c = *convolution_of(g, n);
  auto next = [&](const TensorType& t, size_t dim) { return g.arena().is_const(t.strides[dim], 1); };
  if (next(*c.x, 1)) return next(*c.result, 1);
  if (targets.of(c.result->device).is_gpu() || !next(*c.x, 3) || !next(*c.result, 3)) return false;
  return *g.arena().as_const(c.result->sizes[3]) >= kFewestOfRow &&
         *g.arena().as_const(c.stride->v.back()) <= kMostStrideOfPlanes && !g.arena().is_const(c.weight->sizes[2], 1);
}

}  // namespace braze::graph
