#include "autodiff/overwritten.h"

#include <algorithm>
#include <unordered_map>

#include "autodiff/copier.h"
#include "autodiff/dependence.h"

namespace braze::autodiff {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::ValueId;

graph::Graph keep_overwritten(graph::Graph g, const std::vector<uint32_t>& tangents) {
  if (g.writebacks.empty()) return g;
  std::vector<ValueId> root;
  for (size_t i = 0; i < g.values().size(); ++i) root.emplace_back(i);
  for (const Node& n : g.nodes()) {
    auto* operand = n.args.empty() ? nullptr : std::get_if<ValueId>(&n.args[0]);
    if (graph::op_class(n.op) != graph::OpClass::View || !operand) continue;
    for (ValueId v : n.outputs)
      if (v.valid()) root[v.index] = root[operand->index];
  }
  std::vector<bool> overwritten(g.values().size());
  for (const graph::Writeback& w : g.writebacks) overwritten[w.input.index] = true;
  auto of = tangents_of(g, tangents);
  auto in_backward = [&](const Node& n) {
    bool any = false;
    Graph::for_each_operand(n, [&](ValueId v) { any |= !of[v.index].empty(); });
    return any;
  };
  auto is_read = [&](ValueId v) { return of[v.index].empty() && overwritten[root[v.index].index]; };
  std::vector<ValueId> copied;
  for (const Node& n : g.nodes())
    if (in_backward(n))
      Graph::for_each_operand(n, [&](ValueId v) {
        if (is_read(v) && std::find(copied.begin(), copied.end(), root[v.index]) == copied.end())
          copied.push_back(root[v.index]);
      });
  if (copied.empty()) return g;

  Graph out(g.shared_arena());
  Copier copier(g, out);
  for (const graph::Input& in : g.inputs) copier.input(in.value, in.kind);
  std::unordered_map<uint32_t, ValueId> kept;  // by value of g: the same of the copies
  for (ValueId v : copied) {
    TensorType type = g.type(v);
    type.offset = g.arena().constant(0);
    kept[v.index] = out.node(out.add_node(graph::Op::clone, {copier.map(v), graph::NoneArg{}}, {type})).outputs[0];
  }
  // Views of a copied input are made of the copy as well.
  auto of_copy = [&](auto& self, ValueId v) -> ValueId {
    if (auto it = kept.find(v.index); it != kept.end()) return it->second;
    const Node& view = g.node(g.value(v).node);
    ValueId operand = std::get<ValueId>(view.args[0]), base = self(self, operand), before = copier.map(operand);
    std::vector<ValueId> mapped;
    for (ValueId o : view.outputs) mapped.push_back(copier.map(o));
    copier.set(operand, base);
    for (ValueId o : view.outputs)
      if (o.valid()) copier.set(o, ValueId());
    copier.node(view);
    for (size_t i = 0; i < view.outputs.size(); ++i) {
      if (!view.outputs[i].valid()) continue;
      kept[view.outputs[i].index] = copier.map(view.outputs[i]);
      copier.set(view.outputs[i], mapped[i]);
    }
    copier.set(operand, before);
    return kept.at(v.index);
  };
  for (const Node& n : g.nodes()) {
    std::vector<std::pair<ValueId, ValueId>> replaced;
    if (in_backward(n))
      Graph::for_each_operand(n, [&](ValueId v) {
        if (!is_read(v) || std::find(copied.begin(), copied.end(), root[v.index]) == copied.end()) return;
        if (std::any_of(replaced.begin(), replaced.end(), [&](auto& r) { return r.first == v; })) return;
        ValueId copy = of_copy(of_copy, v);
        replaced.emplace_back(v, copier.map(v));
        copier.set(v, copy);
      });
    copier.node(n);
    for (auto& [v, before] : replaced) copier.set(v, before);
  }
  for (ValueId v : g.outputs) out.outputs.push_back(copier.map(v));
  for (const graph::Writeback& w : g.writebacks) out.writebacks.push_back({copier.map(w.input), copier.map(w.value)});
  out.size_symbols = g.size_symbols;
  return out;
}

}  // namespace braze::autodiff
