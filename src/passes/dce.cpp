#include "passes/dce.h"

#include "graph/raises.h"
#include "graph/random.h"
#include "passes/rewrite.h"
#include "passes/symbols.h"

namespace braze::passes {

Graph dce(const Graph& g) {
  std::vector<bool> live(g.values().size(), false), keep(g.nodes().size(), false);
  auto mark = [&](ValueId v) {
    if (v.valid()) live[v.index] = true;
  };
  // Who needs an unbacked symbol needs the node that defines it.
  const std::unordered_map<uint32_t, size_t> defined = symbol_definitions(g);
  auto need = [&](const std::vector<sym::Expr>& symbols) {
    for (sym::Expr s : symbols)
      if (auto it = defined.find(s.id); it != defined.end()) keep[it->second] = true;
  };
  for (ValueId v : g.outputs) {
    mark(v);
    if (v.valid() && !defined.empty()) need(symbols_of(g, g.type(v)));
  }
  for (const graph::Writeback& w : g.writebacks) mark(w.value);
  for (size_t i = g.nodes().size(); i-- > 0;) {
    const Node& n = g.node(NodeId(i));
    bool used = keep[i] || graph::traits_of(n) & graph::kEffect || graph::may_raise(g, n);
    for (ValueId v : n.outputs) used |= v.valid() && live[v.index];
    if (!used) continue;
    keep[i] = true;
    if (!defined.empty()) need(symbols_of(g, n));
    Graph::for_each_operand(n, mark);
  }
  Rewriter r(g);
  for (size_t i = 0; i < keep.size(); ++i)
    if (keep[i]) r.copy(g.node(NodeId(i)));
  return r.finish();
}

}  // namespace braze::passes
