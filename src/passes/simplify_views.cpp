#include "passes/simplify_views.h"

#include <numeric>
#include <optional>

#include "passes/rewrite.h"

namespace braze::passes {
namespace {

// Where each result dimension comes from; nullopt for what is no permutation.
std::optional<std::vector<size_t>> permutation(const Graph& g, const Node& n) {
  auto* x = n.args.empty() ? nullptr : std::get_if<ValueId>(&n.args[0]);
  if (!x) return std::nullopt;
  size_t rank = g.type(*x).dim();
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  auto dim = [&](const sym::Expr& e) {
    int64_t d = g.arena().as_const(e).value_or(0);
    return static_cast<size_t>(d < 0 ? d + static_cast<int64_t>(rank) : d);
  };
  switch (n.op) {
    case Op::permute: {
      auto* l = std::get_if<graph::IntList>(&n.args[1]);
      if (!l || l->v.size() != rank) return std::nullopt;
      for (size_t i = 0; i < rank; ++i) order[i] = dim(l->v[i]);
      return order;
    }
    case Op::transpose_int: {
      auto *a = std::get_if<sym::Expr>(&n.args[1]), *b = std::get_if<sym::Expr>(&n.args[2]);
      if (!a || !b) return std::nullopt;
      if (rank) std::swap(order[dim(*a)], order[dim(*b)]);
      return order;
    }
    case Op::t:
      if (rank == 2) std::swap(order[0], order[1]);
      return order;
    default: return std::nullopt;
  }
}

}  // namespace

Graph simplify_views(const Graph& g) {
  std::vector<bool> result(g.values().size(), false);
  for (ValueId v : g.outputs)
    if (v.valid()) result[v.index] = true;
  Rewriter r(g);
  Graph& out = r.out();
  for (const Node& n : g.nodes()) {
    std::vector<Arg> args = r.map_args(n);
    auto* x = graph::op_class(n.op) == graph::OpClass::View && !args.empty() ? std::get_if<ValueId>(&args[0]) : nullptr;
    if (!x || n.outputs.size() != 1 || !out.value(*x).node.valid()) {
      r.copy(n, std::move(args));
      continue;
    }
    // A copy: adding a node below may move the nodes.
    Node inner = out.node(out.value(*x).node);
    ValueId old = n.outputs[0];
    auto* source = inner.args.empty() ? nullptr : std::get_if<ValueId>(&inner.args[0]);
    auto now = [&](Op op, std::vector<Arg> new_args) {
      NodeId id = out.add_node(op, std::move(new_args), {g.type(old)}, n.origin());
      r.replace(old, out.node(id).outputs[0]);
    };
    auto is_source = [&] { return !result[old.index] && same_type(out.type(*source), g.type(old)); };
    if (source && is_reshape(n.op) && is_reshape(inner.op)) {
      if (is_source())
        r.replace(old, *source);
      else
        now(Op::view, {*source, graph::IntList{g.type(old).sizes}});
      continue;
    }
    if (source && n.op == Op::expand && inner.op == Op::expand) {
      now(Op::expand, {*source, graph::IntList{g.type(old).sizes}, false});
      continue;
    }
    auto second = source ? permutation(g, n) : std::nullopt;
    auto first = second ? permutation(out, inner) : std::nullopt;
    if (first && second && first->size() == second->size()) {
      if (is_source()) {
        r.replace(old, *source);
        continue;
      }
      graph::IntList order;
      for (size_t d : *second) order.v.push_back(g.arena().constant(static_cast<int64_t>((*first)[d])));
      now(Op::permute, {*source, order});
      continue;
    }
    r.copy(n, std::move(args));
  }
  return r.finish();
}

}  // namespace braze::passes
