#include "passes/causal_masks.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "graph/forbidden_score.h"
#include "passes/element_formula.h"

namespace braze::passes {
namespace {

// Where the arguments of an attention operator are.
struct Form {
  Op op;
  size_t q, mask, causal;
};
constexpr Form kForms[] = {
    {Op::scaled_dot_product_attention, 0, 3, 5},
    {Op::_scaled_dot_product_flash_attention_for_cpu, 0, 5, 4},
    {Op::_scaled_dot_product_flash_attention_for_cpu_backward, 1, 8, 7},
    {Op::_scaled_dot_product_efficient_attention, 0, 3, 6},
    {Op::_scaled_dot_product_efficient_attention_backward, 1, 4, 11},
    {Op::_scaled_dot_product_cudnn_attention, 0, 3, 6},
    {Op::_scaled_dot_product_cudnn_attention_backward, 1, 8, 14},
};

class CausalMasks {
 public:
  explicit CausalMasks(const Graph& g) : g_(g), a_(g.arena()), formulas_(g) {}

  // The node's arguments without its mask; nullopt: it keeps it.
  std::optional<std::vector<Arg>> without_mask(const Node& n, const Rewriter& r) {
    const Form* form = std::find_if(std::begin(kForms), std::end(kForms), [&](const Form& f) { return f.op == n.op; });
    if (form == std::end(kForms) || n.args.size() <= std::max(form->mask, form->causal)) return std::nullopt;
    auto* mask = std::get_if<ValueId>(&n.args[form->mask]);
    auto* causal = std::get_if<bool>(&n.args[form->causal]);
    auto *q = std::get_if<ValueId>(&n.args[form->q]), *k = std::get_if<ValueId>(&n.args[form->q + 1]);
    if (!mask || !mask->valid() || !causal || *causal || !q || !k) return std::nullopt;
    const auto& queries = g_.type(*q).sizes;
    const auto& keys = g_.type(*k).sizes;
    if (queries.size() < 2 || keys.size() < 2) return std::nullopt;
    const std::optional<Allows> allows = what_is_allowed(*mask, queries[queries.size() - 2], keys[keys.size() - 2]);
    if (!allows) return std::nullopt;
    std::vector<Arg> args = r.map_args(n);
    args[form->mask] = graph::NoneArg{};
    args[form->causal] = *allows == Allows::UpToItself;
    return args;
  }

 private:
  enum class Allows : uint8_t { All, UpToItself };

  std::optional<Allows> what_is_allowed(ValueId mask, sym::Expr queries, sym::Expr keys) {
    auto [known, fresh] = allowed_.try_emplace({mask, queries, keys});
    if (fresh) known->second = find_allowed(mask, queries, keys);
    return known->second;
  }

  std::optional<Allows> find_allowed(ValueId mask, sym::Expr queries, sym::Expr keys) {
    const TensorType& type = g_.type(mask);
    if (type.dim() < 2 || (type.dtype != DType::Bool && !is_floating(type.dtype))) return std::nullopt;
    const std::vector<sym::Expr> place = formulas_.place(type.sizes);
    const std::optional<Element> found = formulas_.at(mask, place);
    if (!found) return std::nullopt;
    sym::Expr allowed = found->value;
    if (type.dtype != DType::Bool) {
      const auto [yes, no] = *found->numbers;
      if (yes == 0 && no == 0) return Allows::All;
      if (no == 0 && yes <= graph::forbidden_score(type.dtype))
        allowed = formulas_.negated(allowed);
      else if (yes != 0 || no > graph::forbidden_score(type.dtype))
        return std::nullopt;
    }
    if (a_.known(allowed) == true || a_.is_const(allowed, 1)) return Allows::All;
    // Of as many keys as queries: where there are more, operators differ in which key belongs to the first query.
    const size_t row = type.dim() - 2;
    if (!a_.known_equal(queries, keys) || !a_.known_equal(type.sizes[row], queries) ||
        !a_.known_equal(type.sizes[row + 1], keys))
      return std::nullopt;
    return a_.le(place[row + 1], place[row]) == allowed ? std::optional(Allows::UpToItself) : std::nullopt;
  }

  const Graph& g_;
  sym::ExprArena& a_;
  ElementFormulas formulas_;
  std::map<std::tuple<ValueId, sym::Expr, sym::Expr>, std::optional<Allows>> allowed_;
};

}  // namespace

Graph causal_masks(const Graph& g) {
  Rewriter r(g);
  CausalMasks masks(g);
  for (const Node& n : g.nodes()) {
    if (auto args = masks.without_mask(n, r))
      r.copy(n, std::move(*args));
    else
      r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
