#include "graph/graph.h"

#include "base/check.h"

namespace braze::graph {

Graph::Graph(std::shared_ptr<sym::ExprArena> arena) : arena_(std::move(arena)) {
  BRAZE_CHECK(arena_ != nullptr, "a graph needs an arena");
}

ValueId Graph::add_input(TensorType type, InputKind kind, std::string name) {
  Value v{std::move(type), NodeId(), static_cast<uint32_t>(inputs.size()), std::move(name)};
  ValueId id = values_.add(std::move(v));
  inputs.push_back({id, kind});
  return id;
}

NodeId Graph::add_node(Op op, std::vector<Arg> args, std::vector<TensorType> types, Origin origin,
                       std::string extern_name, std::vector<int32_t> list_sizes) {
  Node node;
  node.op = op;
  node.extern_name = std::move(extern_name);
  node.args = std::move(args);
  node.loc = origin.loc;
  node.checkpoint = origin.checkpoint;
  NodeId id(nodes_.size());
  node.outputs.reserve(types.size());
  for (size_t i = 0; i < types.size(); ++i)
    node.outputs.push_back(values_.add(Value{std::move(types[i]), id, static_cast<uint32_t>(i), {}}));
  if (list_sizes.empty()) list_sizes.assign(types.size(), -1);
  node.list_sizes = std::move(list_sizes);
  return nodes_.add(std::move(node));
}

bool Graph::leaves_float8(const Node& node) const {
  if (takes_float8(node.op)) return false;
  bool any = false;
  auto look = [&](ValueId v) { any = any || (v.valid() && float8(type(v).dtype)); };
  for (ValueId v : node.outputs) look(v);
  for_each_operand(node, look);
  return any;
}

LocId Graph::add_location(Location loc) { return locations_.add(std::move(loc)); }

}  // namespace braze::graph
