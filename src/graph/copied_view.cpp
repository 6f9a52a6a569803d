#include "graph/copied_view.h"

namespace braze::graph {

bool is_copied_view(const Graph& graph, const Node& node) {
  switch (node.op) {
    case Op::view_as_real:
    case Op::view_as_complex:
    case Op::real: return true;
    case Op::view_dtype:
      return is_complex(graph.type(node.outputs[0]).dtype) !=
             is_complex(graph.type(std::get<ValueId>(node.args[0])).dtype);
    default: return false;
  }
}

ValueId memory_root(const Graph& graph, ValueId v) {
  while (graph.value(v).node.valid()) {
    const Node& n = graph.node(graph.value(v).node);
    auto* operand = n.args.empty() ? nullptr : std::get_if<ValueId>(&n.args[0]);
    if (op_class(n.op) != OpClass::View || !operand || is_copied_view(graph, n)) break;
    v = *operand;
  }
  return v;
}

}  // namespace braze::graph
