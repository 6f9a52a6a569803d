#include "passes/symbols.h"

namespace braze::passes {

using graph::Graph;
using graph::Node;
using sym::Expr;

namespace {

bool is_unbacked(const sym::ExprArena& arena, Expr e) {
  return arena.kind(e) == sym::Kind::Symbol && arena.symbol_kind(e) == sym::SymbolKind::Unbacked;
}

void collect(const sym::ExprArena& arena, Expr e, std::vector<Expr>& into) {
  if (arena.depends_on_data(e)) arena.collect_symbols(e, into);
}

void collect(const sym::ExprArena& arena, const TensorType& t, std::vector<Expr>& into) {
  for (Expr e : t.sizes) collect(arena, e, into);
  for (Expr e : t.strides) collect(arena, e, into);
  collect(arena, t.offset, into);
}

std::vector<Expr> only_unbacked(const sym::ExprArena& arena, std::vector<Expr> symbols) {
  std::erase_if(symbols, [&](Expr e) { return !is_unbacked(arena, e); });
  return symbols;
}

}  // namespace

std::unordered_map<uint32_t, size_t> symbol_definitions(const Graph& g) {
  std::unordered_map<uint32_t, size_t> out;
  const sym::ExprArena& arena = g.arena();
  for (size_t i = 0; i < g.nodes().size(); ++i) {
    const Node& n = g.node(graph::NodeId(i));
    for (graph::ValueId v : n.outputs)
      if (v.valid())
        for (Expr e : g.type(v).sizes)
          if (is_unbacked(arena, e)) out.emplace(e.id, i);
    if (n.op != graph::Op::_local_scalar_dense || n.args.size() < 2) continue;
    if (auto* e = std::get_if<Expr>(&n.args[1]); e && is_unbacked(arena, *e)) out.emplace(e->id, i);
  }
  return out;
}

std::vector<Expr> symbols_of(const Graph& g, const Node& n) {
  std::vector<Expr> out;
  const sym::ExprArena& arena = g.arena();
  for (const graph::Arg& a : n.args) {
    if (auto* e = std::get_if<Expr>(&a)) collect(arena, *e, out);
    if (auto* l = std::get_if<graph::IntList>(&a))
      for (Expr e : l->v) collect(arena, e, out);
  }
  for (graph::ValueId v : n.outputs)
    if (v.valid()) collect(arena, g.type(v), out);
  return only_unbacked(arena, std::move(out));
}

std::vector<Expr> symbols_of(const Graph& g, const TensorType& type) {
  std::vector<Expr> out;
  collect(g.arena(), type, out);
  return only_unbacked(g.arena(), std::move(out));
}

}  // namespace braze::passes
