#include "autodiff/copier.h"

namespace braze::autodiff {

using graph::ValueId;

Copier::Copier(const graph::Graph& from, graph::Graph& to, std::vector<std::pair<sym::Expr, sym::Expr>> symbols)
    : from_(from), to_(to), map_(from.values().size()), symbols_(std::move(symbols)) {
  for (const graph::Location& l : from.locations()) to_.add_location(l);
}

TensorType Copier::renamed(TensorType type) const {
  if (symbols_.empty()) return type;
  for (sym::Expr& e : type.sizes) e = renamed(e);
  for (sym::Expr& e : type.strides) e = renamed(e);
  type.offset = renamed(type.offset);
  return type;
}

void Copier::input(ValueId v, graph::InputKind kind) {
  map_[v.index] = to_.add_input(renamed(from_.type(v)), kind, from_.value(v).name);
}

void Copier::add(const graph::Node& n, std::vector<graph::Arg> args) {
  for (graph::Arg& a : args) {
    if (auto* e = std::get_if<sym::Expr>(&a)) *e = renamed(*e);
    if (auto* l = std::get_if<graph::IntList>(&a))
      for (sym::Expr& e : l->v) e = renamed(e);
  }
  std::vector<TensorType> types;
  for (ValueId v : n.outputs)
    if (v.valid()) types.push_back(renamed(from_.type(v)));
  graph::NodeId id = to_.add_node(n.op, std::move(args), std::move(types), n.origin(), n.extern_name, n.list_sizes);
  std::vector<ValueId> outputs;
  size_t k = 0;
  for (size_t i = 0; i < n.outputs.size(); ++i) {
    ValueId made = n.outputs[i].valid() ? to_.node(id).outputs[k++] : ValueId();
    if (made.valid()) {
      to_.value(made).index = static_cast<uint32_t>(i);
      // One result of a node may already be an input while another is computed again.
      if (!map_[n.outputs[i].index].valid()) map_[n.outputs[i].index] = made;
    }
    outputs.push_back(made);
  }
  to_.node(id).outputs = std::move(outputs);
}

}  // namespace braze::autodiff
