#include "passes/attention_products.h"

#include <cmath>
#include <limits>

#include "passes/builder.h"
#include "passes/zero_softmax.h"

namespace braze::passes {
namespace {

constexpr int64_t kFewest = 16;           // of queries, keys and features: below, the products are thin
constexpr int64_t kMostScores = 8 << 20;  // 32 MiB
enum Argument : size_t { kQuery, kKey, kValue, kDropout, kCausal, kMask, kScale, kArguments };

bool takes(const Graph& g, const Targets& targets, const Node& n, const std::vector<bool>& kept) {
  if (n.op != Op::_scaled_dot_product_flash_attention_for_cpu || n.args.size() != kArguments || !n.outputs[0].valid())
    return false;
  if (n.outputs.size() > 1 && n.outputs[1].valid() && kept[n.outputs[1].index]) return false;
  const sym::ExprArena& a = g.arena();
  const TensorType* of[3];
  for (size_t i : {kQuery, kKey, kValue}) {
    auto* v = std::get_if<ValueId>(&n.args[i]);
    if (!v || !v->valid()) return false;
    of[i] = &g.type(*v);
    if (of[i]->dim() != 4 || of[i]->dtype != of[0]->dtype) return false;
  }
  const auto& [q, k, v] = of;
  const Target& target = targets.of(q->device);
  if (target.is_gpu() || !target.slow_f32_products || (q->dtype != DType::F32 && q->dtype != DType::BF16)) return false;
  int64_t scores = 1;
  for (sym::Expr e : {q->sizes[0], q->sizes[1], q->sizes[2], k->sizes[2]}) {
    auto size = a.as_const(e);
    if (!size || *size < 1 || *size > kMostScores) return false;
    scores *= *size;
    if (scores > kMostScores) return false;
  }
  for (sym::Expr e : {q->sizes[2], k->sizes[2], q->sizes[3]})
    if (a.as_const(e).value_or(0) < kFewest) return false;
  return k->sizes == v->sizes && q->sizes[0] == k->sizes[0] && q->sizes[1] == k->sizes[1] && q->sizes[3] == k->sizes[3];
}

// [batch, heads, rows, features] as [batch * heads, rows, features].
ValueId matrices(Builder& b, ValueId v) {
  const TensorType t = b.type(v);
  const auto& s = t.sizes;
  const bool plain = b.arena().is_const(s[0], 1) || b.arena().is_const(s[1], 1) ||
                     b.arena().known_equal(t.strides[0], b.arena().mul(t.strides[1], s[1]));
  if (!plain) v = b.call(Op::clone, {v, graph::MemoryFormatArg{0}});
  return b.view(v, {b.arena().mul(s[0], s[1]), s[2], s[3]});
}

ValueId numbers_to(Builder& b, Expr n, Device device, std::vector<Expr> sizes) {
  return b.view(b.call(Op::arange_start_step, {b.k(0), n, b.k(1), DType::I64, NoneArg{}, device, NoneArg{}}),
                std::move(sizes));
}

bool unfold(Builder& b) {
  if (b.number(kDropout) != 0) return false;
  ValueId q = b.tensor(kQuery), k = b.tensor(kKey), v = b.tensor(kValue), mask = b.optional_tensor(kMask);
  const TensorType like = b.type(q);
  const Expr batch = like.sizes[0], heads = like.sizes[1], queries = like.sizes[2], keys = b.type(k).sizes[2];
  const bool given = !std::holds_alternative<NoneArg>(b.args[kScale]);
  const double scale =
      given ? b.number(kScale) : 1 / std::sqrt(static_cast<double>(b.arena().as_const(like.sizes[3]).value()));
  // Scores are float, as in the fused kernel.
  ValueId columns = b.call(Op::transpose_int, {matrices(b, b.compute(k)), b.k(1), b.k(2)});
  ValueId scores = b.call(Op::bmm, {matrices(b, b.compute(q)), columns});
  const DType wide = b.type(scores).dtype;
  scores = b.mul(b.view(scores, {batch, heads, queries, keys}), scale);
  const double none = -std::numeric_limits<double>::infinity();
  if (b.flag(kCausal)) {
    ValueId later = b.call(Op::gt_Tensor, {numbers_to(b, keys, like.device, {b.k(1), keys}),
                                           numbers_to(b, queries, like.device, {queries, b.k(1)})});
    scores = b.where(later, b.full({}, none, wide, like.device), scores);
  }
  if (mask.valid()) scores = b.add(scores, b.cast(mask, wide));
  const Weights w = zero_softmax(b, scores);
  ValueId weights = b.cast(b.div(w.of_keys, w.total), like.dtype);
  ValueId made = b.call(Op::bmm, {b.view(weights, {b.arena().mul(batch, heads), queries, keys}), matrices(b, v)});
  b.set(0, b.view(made, {batch, heads, queries, b.type(v).sizes[3]}));
  if (b.node.outputs.size() > 1 && b.wants(1))  // the logarithm of the sum
    b.set(1, b.view(b.add(w.most, b.unary(Op::log, w.total)), {batch, heads, queries}));
  return true;
}

}  // namespace

Graph attention_products(const Graph& g, const Targets& targets) {
  Rewriter r(g);
  std::vector<bool> kept = escaping(g);  // or a backward's
  for (const Node& n : g.nodes())
    if (n.op == Op::_scaled_dot_product_flash_attention_for_cpu_backward)
      Graph::for_each_operand(n, [&](ValueId v) { kept[v.index] = true; });
  for (const Node& n : g.nodes())
    if (!takes(g, targets, n, kept) || !rewrite(r, n, g, unfold)) r.copy(n);
  return r.finish();
}

}  // namespace braze::passes
