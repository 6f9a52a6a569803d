#include "passes/select_parts.h"

#include "passes/builder.h"

namespace braze::passes {
namespace {

constexpr size_t kMostParts = 4;
constexpr int64_t kMostElements = 1 << 16;  // of the result: more are worth whole vectors

bool is_small(const Graph& g, const Targets& targets, const Node& n) {
  if (n.op != Op::cat || n.args.empty() || n.outputs.size() != 1 || !n.outputs[0].valid()) return false;
  auto* parts = std::get_if<TensorList>(&n.args[0]);
  const TensorType& out = g.type(n.outputs[0]);
  if (!parts || parts->size() < 2 || parts->size() > kMostParts || !targets.of(out.device).is_gpu()) return false;
  int64_t elements = 1;
  for (Expr s : out.sizes) {
    auto size = g.arena().as_const(s);
    if (!size || *size > kMostElements) return false;
    elements *= *size;
    if (elements > kMostElements) return false;
  }
  for (ValueId v : *parts)
    if (!v.valid() || g.type(v).dtype != out.dtype || g.type(v).dim() != out.dim()) return false;
  return elements > 0 && out.dim() > 0;
}

}  // namespace

Graph select_parts(const Graph& g, const Targets& targets) {
  Rewriter r(g);
  for (const Node& n : g.nodes()) {
    auto chosen = [&](Builder& b) {
      const auto& parts = std::get<TensorList>(b.args[0]);
      const TensorType& out = b.result(0);
      size_t d = b.args.size() > 1 ? b.dim(1, out.dim()) : 0;
      int64_t whole = *b.arena().as_const(out.sizes[d]), from = 0;
      std::vector<Expr> along(out.dim(), b.k(1));
      along[d] = out.sizes[d];
      ValueId place = b.view(
          b.call(Op::arange_start_step, {b.k(0), out.sizes[d], b.k(1), DType::I64, NoneArg{}, out.device, NoneArg{}}),
          along);
      ValueId all;
      for (ValueId part : parts) {
        auto size = b.arena().as_const(b.type(part).sizes[d]);
        if (!size) return false;
        std::vector<int64_t> around(2 * (out.dim() - d), 0);
        around[around.size() - 2] = from;
        around[around.size() - 1] = whole - from - *size;
        ValueId padded = b.call(Op::constant_pad_nd, {part, b.list(around), b.k(0)});
        all = all.valid() ? b.where(b.call(Op::lt_Scalar, {place, b.k(from)}), all, padded) : padded;
        from += *size;
      }
      if (from != whole) return false;
      b.set(0, all);
      return true;
    };
    if (!is_small(g, targets, n) || !rewrite(r, n, g, chosen)) r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
