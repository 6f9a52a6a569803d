#include "autodiff/dependence.h"

#include <algorithm>
#include <iterator>

namespace braze::autodiff {

using graph::ValueId;

std::vector<std::vector<uint32_t>> tangents_of(const graph::Graph& g, const std::vector<uint32_t>& tangents) {
  std::vector<std::vector<uint32_t>> out(g.values().size());
  for (uint32_t t = 0; t < tangents.size(); ++t) out[g.inputs[tangents[t]].value.index] = {t};
  for (const graph::Node& n : g.nodes()) {
    std::vector<uint32_t> all;
    graph::Graph::for_each_operand(n, [&](ValueId v) {
      const auto& of = out[v.index];
      if (of.empty() || of == all) return;
      std::vector<uint32_t> merged;
      std::set_union(all.begin(), all.end(), of.begin(), of.end(), std::back_inserter(merged));
      all = std::move(merged);
    });
    for (ValueId v : n.outputs)
      if (v.valid()) out[v.index] = all;
  }
  return out;
}

}  // namespace braze::autodiff
