#include "autodiff/specialise.h"

#include <algorithm>

#include "autodiff/copier.h"
#include "autodiff/dependence.h"

namespace braze::autodiff {

using graph::Graph;
using graph::InputKind;
using graph::Node;
using graph::NodeId;
using graph::ValueId;

namespace {

bool same_layout(const TensorType& a, const TensorType& b) {
  return a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides;
}

ValueId zeros(Graph& g, const TensorType& like) {
  TensorType type = like;
  type.strides = contiguous_strides(g.arena(), type.sizes);
  type.offset = g.arena().constant(0);
  NodeId n = g.add_node(graph::Op::full,
                        {graph::IntList{type.sizes}, 0.0, type.dtype, graph::NoneArg{}, type.device, graph::NoneArg{}},
                        {type});
  return g.node(n).outputs[0];
}

}  // namespace

Backward specialise(const Partition& parts, const std::vector<bool>& given) {
  const Graph& backward = parts.backward;
  std::vector<uint32_t> numbers(given.size());
  for (uint32_t i = 0; i < parts.sources.size(); ++i)
    if (parts.sources[i].kind == Source::Kind::Tangent) numbers[parts.sources[i].index] = i;
  auto tangents = tangents_of(backward, numbers);
  auto zero = [&](ValueId v) {
    const auto& of = tangents[v.index];
    return !of.empty() && std::none_of(of.begin(), of.end(), [&](uint32_t t) { return given[t]; });
  };
  // A sum with zero is the other term.
  std::vector<ValueId> same(backward.values().size());
  for (size_t i = 0; i < same.size(); ++i) same[i] = ValueId(i);
  for (const Node& n : backward.nodes()) {
    if (n.op != graph::Op::add_Tensor) continue;
    auto *a = std::get_if<ValueId>(&n.args[0]), *b = std::get_if<ValueId>(&n.args[1]);
    if (!a || !b || zero(*a) == zero(*b)) continue;
    auto* alpha = std::get_if<sym::Expr>(&n.args[2]);
    ValueId other = zero(*a) ? *b : *a, out = n.outputs[0];
    bool plain = zero(*b) || (alpha && backward.arena().is_const(*alpha, 1));
    if (plain && same_layout(backward.type(other), backward.type(out))) same[out.index] = same[other.index];
  }
  std::vector<bool> live(backward.values().size(), false), keep(backward.nodes().size(), false);
  auto mark = [&](ValueId v) {
    if (!zero(v)) live[same[v.index].index] = true;
  };
  for (ValueId v : backward.outputs)
    if (v.valid()) mark(v);
  for (size_t i = backward.nodes().size(); i-- > 0;) {
    const Node& n = backward.node(NodeId(i));
    for (ValueId v : n.outputs) keep[i] = keep[i] || (v.valid() && live[v.index]);
    if (keep[i]) Graph::for_each_operand(n, mark);
  }

  Backward out{Graph(backward.shared_arena()), {}};
  Copier copy(backward, out.graph);
  for (uint32_t i = 0; i < backward.inputs.size(); ++i) {
    const graph::Input& in = backward.inputs[i];
    if (!live[in.value.index] && in.kind != InputKind::Constant) continue;
    copy.input(in.value, in.kind);
    out.inputs.push_back(i);
  }
  out.graph.size_symbols = backward.size_symbols;
  for (size_t i = 0; i < keep.size(); ++i) {
    if (!keep[i]) continue;
    const Node& n = backward.node(NodeId(i));
    copy.node(n, [&](ValueId v) {
      ValueId stands = same[v.index];
      return copy.has(stands) ? copy.map(stands) : zeros(out.graph, backward.type(v));
    });
  }
  for (ValueId v : backward.outputs)
    out.graph.outputs.push_back(!v.valid() || zero(v) ? ValueId() : copy.map(same[v.index]));
  return out;
}

}  // namespace braze::autodiff
