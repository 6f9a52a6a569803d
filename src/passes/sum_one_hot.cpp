#include "passes/sum_one_hot.h"

#include "passes/builder.h"

namespace braze::passes {
namespace {

const Node* made_by(const Graph& g, const Arg& a, Op op) {
  auto* v = std::get_if<ValueId>(&a);
  if (!v || !v->valid() || !g.value(*v).node.valid()) return nullptr;
  const Node& n = g.node(g.value(*v).node);
  return n.op == op ? &n : nullptr;
}

// Whether the value is 0, 1, ... along dimension `d` from the end, and the same along all others.
bool counts_along(const Graph& g, const Arg& a, size_t d) {
  auto* v = std::get_if<ValueId>(&a);
  if (!v) return false;
  const std::vector<Expr>& sizes = g.type(*v).sizes;
  if (d > sizes.size()) return false;
  for (size_t k = 0; k < sizes.size(); ++k)
    if (k + d != sizes.size() && !g.arena().is_const(sizes[k], 1)) return false;
  const Arg* of = &a;
  for (Op view : {Op::view, Op::unsqueeze})
    while (const Node* n = made_by(g, *of, view)) of = n->args.data();
  const Node* n = made_by(g, *of, Op::arange_start_step);
  return n && g.type(n->outputs[0]).dtype == DType::I64 && is_number(g, n->args[0], 0) && is_number(g, n->args[2], 1);
}

// Whether the value is the same all along dimension `d` from the end.
bool is_flat(const Graph& g, const Arg& a, size_t d) {
  auto* v = std::get_if<ValueId>(&a);
  if (!v) return true;
  const std::vector<Expr>& sizes = g.type(*v).sizes;
  return d > sizes.size() || g.arena().is_const(sizes[sizes.size() - d], 1);
}

// sum(where(classes == place [and counted], x, 0), [d]), in the old graph.
struct OneHot {
  Arg place, counted, x;  // counted: NoneArg where all are
  bool keep = false;
};

std::optional<OneHot> one_hot(const Graph& g, const Node& n) {
  if (n.op != Op::sum_dim_IntList) return std::nullopt;
  const Node* choice = made_by(g, n.args[0], Op::where_self);
  auto* dims = std::get_if<graph::IntList>(&n.args[1]);
  if (!choice || !dims || dims->v.size() != 1 || !is_number(g, choice->args[2], 0)) return std::nullopt;
  const TensorType &from = g.type(choice->outputs[0]), &to = g.type(n.outputs[0]);
  const auto rank = static_cast<int64_t>(from.dim()), at = *g.arena().as_const(dims->v[0]);
  const auto d = static_cast<size_t>(at < 0 ? -at : rank - at);
  if (!is_floating(from.dtype) || from.dtype != to.dtype) return std::nullopt;
  OneHot out{{}, NoneArg{}, choice->args[1], std::get<bool>(n.args[2])};
  const Arg* hit = choice->args.data();
  const Node* both = made_by(g, *hit, Op::logical_and);
  if (both) hit = both->args.data(), out.counted = both->args[1];
  const Node* equal = made_by(g, *hit, Op::eq_Tensor);
  if (!equal || !counts_along(g, equal->args[0], d)) return std::nullopt;
  out.place = equal->args[1];
  auto* place = std::get_if<ValueId>(&out.place);
  if (!place || g.type(*place).dtype != DType::I64 || !is_flat(g, out.place, d) || !is_flat(g, out.counted, d) ||
      !is_flat(g, out.x, d))
    return std::nullopt;
  return out;
}

}  // namespace

Graph sum_one_hot(const Graph& g) {
  Rewriter r(g);
  for (const Node& n : g.nodes()) {
    auto at_place = [&](Builder& b) {
      auto found = one_hot(g, n);
      if (!found) return false;
      auto mapped = [&](const Arg& a) {
        auto* v = std::get_if<ValueId>(&a);
        return v ? Arg(r.map(*v)) : a;
      };
      const TensorType& whole = g.type(std::get<ValueId>(n.args[0]));
      const auto rank = static_cast<int64_t>(whole.dim()), at = *g.arena().as_const(std::get<IntList>(n.args[1]).v[0]);
      const auto d = static_cast<size_t>(at < 0 ? at + rank : at);
      Arg place = mapped(found->place);
      ValueId inside = b.call(Op::logical_and,
                              {b.call(Op::ge_Scalar, {place, b.k(0)}), b.call(Op::lt_Scalar, {place, whole.sizes[d]})});
      if (!std::holds_alternative<NoneArg>(found->counted))
        inside = b.call(Op::logical_and, {inside, mapped(found->counted)});
      ValueId sum = b.add(b.where(inside, mapped(found->x), 0.0), 0.0);  // a sum of zeros is +0
      std::vector<Expr> kept = whole.sizes;
      kept[d] = b.k(1);
      if (b.type(sum).sizes != kept || b.type(sum).dtype != whole.dtype) return false;
      b.set(0, found->keep ? sum : b.call(Op::squeeze_dim, {sum, b.k(static_cast<int64_t>(d))}));
      return true;
    };
    if (n.op != Op::sum_dim_IntList || !rewrite(r, n, g, at_place)) r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
