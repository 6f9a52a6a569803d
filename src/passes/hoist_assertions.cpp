#include "passes/hoist_assertions.h"

#include <algorithm>
#include <unordered_map>

#include "passes/rewrite.h"
#include "passes/symbols.h"

namespace braze::passes {

graph::Graph hoist_assertions(const graph::Graph& g) {
  bool any = false;
  for (const Node& n : g.nodes()) any |= n.op == Op::_assert_scalar;
  if (!any) return g;
  std::unordered_map<uint32_t, size_t> defined = symbol_definitions(g);
  std::vector<std::vector<size_t>> after(g.nodes().size() + 1);  // assertions that go before node i
  std::vector<bool> moved(g.nodes().size(), false);
  for (size_t i = 0; i < g.nodes().size(); ++i) {
    const Node& n = g.node(NodeId(i));
    if (n.op != Op::_assert_scalar) continue;
    size_t at = 0;
    for (sym::Expr s : symbols_of(g, n))
      if (auto it = defined.find(s.id); it != defined.end()) at = std::max(at, it->second + 1);
    if (at > i) continue;
    after[at].push_back(i);
    moved[i] = true;
  }
  Rewriter r(g);
  for (size_t i = 0; i < g.nodes().size(); ++i) {
    for (size_t a : after[i]) r.copy(g.node(NodeId(a)));
    if (!moved[i]) r.copy(g.node(NodeId(i)));
  }
  return r.finish();
}

}  // namespace braze::passes
