#include "passes/dce.h"

#include "graph/random.h"
#include "passes/rewrite.h"

namespace braze::passes {

Graph dce(const Graph& g) {
  std::vector<bool> live(g.values().size(), false), keep(g.nodes().size(), false);
  auto mark = [&](ValueId v) {
    if (v.valid()) live[v.index] = true;
  };
  for (ValueId v : g.outputs) mark(v);
  for (const graph::Writeback& w : g.writebacks) mark(w.value);
  for (size_t i = g.nodes().size(); i-- > 0;) {
    const Node& n = g.node(NodeId(i));
    bool used = graph::traits_of(n) & graph::kEffect;
    for (ValueId v : n.outputs) used |= v.valid() && live[v.index];
    if (!used) continue;
    keep[i] = true;
    Graph::for_each_operand(n, mark);
  }
  Rewriter r(g);
  for (size_t i = 0; i < keep.size(); ++i)
    if (keep[i]) r.copy(g.node(NodeId(i)));
  return r.finish();
}

}  // namespace braze::passes
