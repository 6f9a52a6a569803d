#include "graph/depthwise.h"

#include <algorithm>

namespace braze::graph {
namespace {

constexpr int64_t kMostTaps = 256, kMostTapsOfRow = 16, kMostStrideOfPlanes = 4;
constexpr int64_t kFewestOfRow = 12;  // of planes: a row is copied at a cost of its own

// A list of one or two constants.
bool is_known(const Graph& g, const Arg& arg) {
  auto* list = std::get_if<IntList>(&arg);
  if (!list || list->v.empty() || list->v.size() > 2) return false;
  for (sym::Expr e : list->v)
    if (!g.arena().as_const(e)) return false;
  return true;
}

const TensorType* operand(const Graph& g, const Node& n, size_t i) {
  auto* v = std::get_if<ValueId>(&n.args[i]);
  return v && v->valid() ? &g.type(*v) : nullptr;
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
  if (n.op != Op::convolution || n.args.size() != 9 || n.outputs.size() != 1 || !n.outputs[0].valid()) return false;
  const TensorType *x = operand(g, n, 0), *w = operand(g, n, 1), *bias = operand(g, n, 2);
  const TensorType& out = g.type(n.outputs[0]);
  if (!x || !w || x->dim() != 4 || w->dim() != 4 || out.dim() != 4) return false;
  const Target& target = targets.of(out.device);
  if (!(target.is_gpu() ? target.slow_depthwise : target.strips) || x->device != out.device || w->device != out.device)
    return false;
  if (out.dtype != DType::F32 && out.dtype != DType::F16 && out.dtype != DType::BF16) return false;
  if (x->dtype != out.dtype || w->dtype != out.dtype) return false;
  if (bias ? bias->dtype != out.dtype || bias->device != out.device : !std::holds_alternative<NoneArg>(n.args[2]))
    return false;
  auto* transposed = std::get_if<bool>(&n.args[6]);
  auto* groups = std::get_if<sym::Expr>(&n.args[8]);
  if (!transposed || *transposed || !groups || !is_known(g, n.args[3]) || !is_known(g, n.args[4]) ||
      !is_known(g, n.args[5]))
    return false;
  const sym::ExprArena& a = g.arena();
  auto channels = a.as_const(out.sizes[1]), high = a.as_const(w->sizes[2]), wide = a.as_const(w->sizes[3]);
  if (!channels || *channels < 2 || !a.is_const(*groups, *channels) || !a.is_const(x->sizes[1], *channels))
    return false;
  if (!a.is_const(w->sizes[1], 1) || !a.as_const(out.sizes[3])) return false;
  const bool fits = high && wide && *high >= 1 && *wide >= 1 && *wide <= kMostTapsOfRow && *high <= kMostTaps / *wide &&
                    *high * *wide > 1;
  return fits && (target.is_gpu() || pays_on_cpu(g, n));
}

bool is_depthwise_kernel(const Graph& g, const Node& n, const Targets& targets) {
  if (!is_depthwise(g, n, targets)) return false;
  const TensorType &x = *operand(g, n, 0), &w = *operand(g, n, 1), &out = g.type(n.outputs[0]);
  auto next = [&](const TensorType& t, size_t dim) { return g.arena().is_const(t.strides[dim], 1); };
  if (next(x, 1)) return next(out, 1);
  if (targets.of(out.device).is_gpu() || !next(x, 3) || !next(out, 3)) return false;
  const auto& strides = std::get<IntList>(n.args[3]).v;
  return *g.arena().as_const(out.sizes[3]) >= kFewestOfRow &&
         *g.arena().as_const(strides.back()) <= kMostStrideOfPlanes && !g.arena().is_const(w.sizes[2], 1);
}

}  // namespace braze::graph
