#include "passes/unfold_attention.h"

#include <cmath>

#include "passes/builder.h"
#include "passes/zero_softmax.h"

namespace braze::passes {
namespace {

// From here on a library that splits the keys of one head over the device is faster.
constexpr int64_t kMostKeys = 2048;

// Where the arguments of an attention operator are; -1: it has none of these.
struct Form {
  Op op;
  int mask, dropout, causal, scale;
};
constexpr Form kForms[] = {
    {Op::_scaled_dot_product_flash_attention, -1, 3, 4, 6},
    {Op::_scaled_dot_product_efficient_attention, 3, 5, 6, 7},
    {Op::_scaled_dot_product_cudnn_attention, 3, 5, 6, 8},
};

// A copy in which elements of memory stand several times, as those of heads that are grouped.
bool is_repeated(const Graph& g, ValueId v) {
  for (NodeId at = g.value(v).node; at.valid(); at = g.value(v).node) {
    const Node& n = g.node(at);
    switch (n.op) {
      case Op::expand: {
        const TensorType& t = g.type(v);
        for (size_t d = 0; d < t.dim(); ++d)
          if (g.arena().is_const(t.strides[d], 0) && g.arena().range(t.sizes[d]).lo > 1) return true;
        break;
      }
      case Op::view:
      case Op::_unsafe_view:
      case Op::unsqueeze:
      case Op::clone: break;
      default: return false;
    }
    v = std::get<ValueId>(n.args[0]);
  }
  return false;
}

const Form* form_of(const Graph& g, const Targets& targets, const Node& n, const std::vector<uint32_t>& uses) {
  const Form* form = nullptr;
  for (const Form& f : kForms)
    if (f.op == n.op && n.args.size() == static_cast<size_t>(f.scale) + 1) form = &f;
  if (!form || !n.outputs[0].valid() || !targets.of(g.type(n.outputs[0]).device).slow_thin_products) return nullptr;
  for (size_t i = 1; i < n.outputs.size(); ++i)  // statistics are asked for: a backward will read them
    if (n.outputs[i].valid() && uses[n.outputs[i].index]) return nullptr;
  const sym::ExprArena& a = g.arena();
  const TensorType* of[3];
  for (size_t i = 0; i < 3; ++i) {
    auto* v = std::get_if<ValueId>(&n.args[i]);
    if (!v || !v->valid()) return nullptr;
    of[i] = &g.type(*v);
    if (of[i]->dim() != 4 || of[i]->dtype != of[0]->dtype || !is_floating(of[i]->dtype)) return nullptr;
  }
  const auto& [q, k, v] = of;
  auto keys = a.as_const(k->sizes[2]);
  bool plain = a.is_const(q->sizes[2], 1) && keys && *keys >= 1 && *keys <= kMostKeys && v->sizes == k->sizes;
  for (size_t d : {0, 1, 3}) plain = plain && q->sizes[d] == k->sizes[d];
  for (size_t i : {1, 2}) plain = plain && is_repeated(g, std::get<ValueId>(n.args[i]));
  return plain ? form : nullptr;
}

}  // namespace

Graph unfold_attention(const Graph& g, const Targets& targets) {
  Rewriter r(g);
  std::vector<uint32_t> uses = use_counts(g);
  for (const Node& n : g.nodes()) {
    const Form* form = form_of(g, targets, n, uses);
    auto unfolded = [&](Builder& b) {
      if (b.number(static_cast<size_t>(form->dropout)) != 0 || b.flag(static_cast<size_t>(form->causal))) return false;
      ValueId q = b.compute(b.tensor(0)), k = b.compute(b.tensor(1)), v = b.compute(b.tensor(2));
      const DType compute = b.type(q).dtype;
      const Arg& given = b.args.at(static_cast<size_t>(form->scale));
      auto features = b.arena().as_const(b.type(q).sizes[3]);
      if (std::holds_alternative<NoneArg>(given) && !features) return false;
      double scale = std::holds_alternative<NoneArg>(given) ? 1 / std::sqrt(static_cast<double>(*features))
                                                            : b.number(static_cast<size_t>(form->scale));
      ValueId scores = b.unsqueeze(b.sum(b.mul(k, b.mul(q, scale)), {3}, false), 2);
      ValueId mask = form->mask < 0 ? ValueId() : b.optional_tensor(static_cast<size_t>(form->mask));
      if (mask.valid()) scores = b.add(scores, b.cast(mask, compute));
      const Weights w = zero_softmax(b, scores);
      ValueId column = b.call(Op::transpose_int, {w.of_keys, b.k(2), b.k(3)});
      b.set(0, b.div(b.sum(b.mul(v, column), {2}, true), w.total));
      return true;
    };
    if (!form || !rewrite(r, n, g, unfolded)) r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
