#include "autodiff/late_sums.h"

#include <algorithm>

namespace braze::autodiff {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::ValueId;

std::vector<bool> late_sums(const Graph& g, const std::vector<bool>& after, const std::vector<ValueId>& root,
                            const std::vector<Repeat>& repeats) {
  std::vector<bool> out(g.nodes().size());
  // Of values: how much work of its own lies before them, one after another, and before their first reader.
  std::vector<uint32_t> depth(g.values().size()), first_read(g.values().size(), UINT32_MAX);
  for (size_t i = 0; i < g.nodes().size(); ++i) {
    const Node& n = g.node(NodeId(i));
    if (after[i] || n.outputs.empty() || !n.outputs[0].valid()) continue;
    uint32_t at = 0;
    Graph::for_each_operand(n, [&](ValueId v) { at = std::max(at, depth[v.index]); });
    bool early = false, late = false;
    Graph::for_each_operand(n, [&](ValueId v) {
      uint32_t& first = first_read[root[v.index].index];
      const bool changes = g.value(v).node.valid() || g.inputs[g.value(v).index].kind == graph::InputKind::Argument;
      if (changes && elements_of(g, v) == elements_of(g, n.outputs[0])) (first < at ? early : late) = true;
      first = std::min(first, at);
    });
    out[i] = repeats[i] == Repeat::Fused && early && late;
    for (ValueId v : n.outputs)
      if (v.valid()) depth[v.index] = at + (repeats[i] >= Repeat::Dear);
  }
  return out;
}

}  // namespace braze::autodiff
