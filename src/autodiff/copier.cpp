#include "autodiff/copier.h"

namespace braze::autodiff {

using graph::ValueId;

Copier::Copier(const graph::Graph& from, graph::Graph& to) : from_(from), to_(to), map_(from.values().size()) {
  for (const graph::Location& l : from.locations()) to_.add_location(l);
}

void Copier::input(ValueId v, graph::InputKind kind) { map_[v.index] = to_.add_input(from_.type(v), kind, from_.value(v).name); }

void Copier::add(const graph::Node& n, std::vector<graph::Arg> args) {
  std::vector<TensorType> types;
  for (ValueId v : n.outputs)
    if (v.valid()) types.push_back(from_.type(v));
  graph::NodeId id = to_.add_node(n.op, std::move(args), std::move(types), n.loc, n.extern_name, n.list_sizes);
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
