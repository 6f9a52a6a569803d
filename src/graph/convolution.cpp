#include "graph/convolution.h"

namespace braze::graph {

std::optional<Convolution> convolution_of(const Graph& g, const Node& n) {
  if (n.op != Op::convolution || n.args.size() != 9 || n.outputs.size() != 1 || !n.outputs[0].valid())
    return std::nullopt;
  auto operand = [&](size_t i) -> const TensorType* {
    auto* v = std::get_if<ValueId>(&n.args[i]);
    return v && v->valid() ? &g.type(*v) : nullptr;
  };
  const TensorType *x = operand(0), *w = operand(1), *bias = operand(2), *out = &g.type(n.outputs[0]);
  if (!x || !w || x->dim() != 4 || w->dim() != 4 || out->dim() != 4) return std::nullopt;
  if (!bias && !std::holds_alternative<NoneArg>(n.args[2])) return std::nullopt;
  for (const TensorType* t : {x, w, bias ? bias : out})
    if (t->dtype != out->dtype || t->device != out->device) return std::nullopt;
  auto* transposed = std::get_if<bool>(&n.args[6]);
  auto* groups = std::get_if<sym::Expr>(&n.args[8]);
  auto list = [&](size_t i) { return std::get_if<IntList>(&n.args[i]); };
  if (!transposed || *transposed || !groups || !list(3) || !list(4) || !list(5)) return std::nullopt;
  return Convolution{x, w, out, list(3), list(4), list(5), *groups};
}

}  // namespace braze::graph
