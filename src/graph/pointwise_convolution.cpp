#include "graph/pointwise_convolution.h"

namespace braze::graph {
namespace {

constexpr int64_t kMostWork = 12 << 20;  // multiplications

// A list of which each number is the one.
bool is_all(const Graph& g, const Arg& arg, int64_t number) {
  auto* list = std::get_if<IntList>(&arg);
  if (!list || list->v.empty()) return false;
  for (sym::Expr e : list->v)
    if (!g.arena().is_const(e, number)) return false;
  return true;
}

const TensorType* operand(const Graph& g, const Node& n, size_t i) {
  auto* v = std::get_if<ValueId>(&n.args[i]);
  return v && v->valid() ? &g.type(*v) : nullptr;
}

}  // namespace

bool is_pointwise_convolution(const Graph& g, const Node& n, const Targets& targets) {
  if (n.op != Op::convolution || n.args.size() != 9 || n.outputs.size() != 1 || !n.outputs[0].valid()) return false;
  const TensorType *x = operand(g, n, 0), *w = operand(g, n, 1), *bias = operand(g, n, 2);
  const TensorType& out = g.type(n.outputs[0]);
  if (!x || !w || x->dim() != 4 || w->dim() != 4 || out.dim() != 4) return false;
  if (targets.of(out.device).is_gpu() || !targets.of(out.device).strips) return false;
  for (const TensorType* t : {x, w, &out, bias ? bias : &out})
    if (t->dtype != DType::F32 || t->device != out.device) return false;
  if (!bias && !std::holds_alternative<NoneArg>(n.args[2])) return false;
  auto* transposed = std::get_if<bool>(&n.args[6]);
  auto* groups = std::get_if<sym::Expr>(&n.args[8]);
  const sym::ExprArena& a = g.arena();
  if (!transposed || *transposed || !groups || !a.is_const(*groups, 1)) return false;
  if (!is_all(g, n.args[3], 1) || !is_all(g, n.args[4], 0) || !is_all(g, n.args[5], 1)) return false;
  if (!a.is_const(w->sizes[2], 1) || !a.is_const(w->sizes[3], 1)) return false;
  int64_t work = 1;
  for (sym::Expr e : {out.sizes[0], out.sizes[1], out.sizes[2], out.sizes[3], w->sizes[1]}) {
    auto size = a.as_const(e);
    if (!size || *size < 1 || *size > kMostWork) return false;
    work *= *size;
    if (work > kMostWork) return false;
  }
  return true;
}

bool is_pointwise_convolution_kernel(const Graph& g, const Node& n, const Targets& targets) {
  if (!is_pointwise_convolution(g, n, targets)) return false;
  const sym::ExprArena& a = g.arena();
  const TensorType &x = *operand(g, n, 0), &w = *operand(g, n, 1), &out = g.type(n.outputs[0]);
  auto next = [&](const TensorType& t, size_t dim) { return a.is_const(t.strides[dim], 1); };
  const bool planes = next(x, 3) && next(out, 3), pixels = next(x, 1) && next(out, 1) && next(w, 0);
  const bool one = a.is_const(out.sizes[2], 1) && a.is_const(out.sizes[3], 1) && next(x, 1);
  return planes || pixels || one;
}

}  // namespace braze::graph
