// Rules:
//  operands   every operand is an input or the output of an earlier node of this graph
//  outputs    a node's output values point back to it and to their place in it
//  types      as many strides as sizes; no constant size is negative
//  lists      list_sizes cover the outputs; more than one result only with trait MultiOutput
//  results    graph outputs and writebacks are defined; a writeback's target is an input of the same dtype and sizes
//  names      an extern node has a name, a node with a row has none
#include "base/check.h"
#include "graph/graph.h"

namespace braze::graph {
namespace {

[[noreturn]] void broken(std::string_view rule, const std::string& where) {
  throw InternalError("graph verifier, rule '" + std::string(rule) + "': " + where);
}

}  // namespace

void verify(const Graph& g) {
  sym::ExprArena& arena = g.arena();
  std::vector<bool> defined(g.values().size(), false);
  auto check_type = [&](ValueId v, const std::string& where) {
    const TensorType& t = g.type(v);
    if (t.sizes.size() != t.strides.size()) broken("types", where);
    for (Expr s : t.sizes)
      if (auto c = arena.as_const(s); c && *c < 0) broken("types", where + ": negative size");
  };
  auto is_defined = [&](ValueId v) { return v.valid() && v.index < defined.size() && defined[v.index]; };

  for (size_t i = 0; i < g.inputs.size(); ++i) {
    ValueId v = g.inputs[i].value;
    std::string where = "input " + std::to_string(i);
    if (!v.valid() || v.index >= defined.size()) broken("outputs", where);
    if (g.value(v).node.valid() || g.value(v).index != i) broken("outputs", where);
    check_type(v, where);
    defined[v.index] = true;
  }
  for (size_t i = 0; i < g.nodes().size(); ++i) {
    NodeId id(i);
    const Node& n = g.node(id);
    std::string where =
        "node " + std::to_string(i) + ", " + std::string(n.op == Op::Extern ? n.extern_name : op_name(n.op));
    if ((n.op == Op::Extern) == n.extern_name.empty()) broken("names", where);
    for (const Arg& a : n.args)
      if (auto* v = std::get_if<ValueId>(&a); v && !v->valid()) broken("operands", where + ": invalid value");
    Graph::for_each_operand(n, [&](ValueId v) {
      if (!is_defined(v))
        broken("operands", where + ": value " + std::to_string(v.index) + " is not defined before it");
    });
    size_t count = 0;
    for (int32_t s : n.list_sizes) count += s < 0 ? 1 : static_cast<size_t>(s);
    if (count != n.outputs.size()) broken("lists", where);
    if (n.op != Op::Extern && n.outputs.size() > 1 && !(op_traits(n.op) & kMultiOutput)) broken("lists", where);
    for (size_t k = 0; k < n.outputs.size(); ++k) {
      ValueId v = n.outputs[k];
      if (!v.valid()) continue;
      if (v.index >= defined.size() || defined[v.index]) broken("outputs", where);
      if (g.value(v).node != id || g.value(v).index != k) broken("outputs", where);
      check_type(v, where);
      defined[v.index] = true;
    }
  }
  for (ValueId v : g.outputs)
    if (v.valid() && !is_defined(v)) broken("results", "an output is not defined");
  for (const Writeback& w : g.writebacks) {
    if (!is_defined(w.input) || !is_defined(w.value)) broken("results", "a writeback is not defined");
    if (g.value(w.input).node.valid()) broken("results", "a writeback's target is no input");
    const TensorType &to = g.type(w.input), &from = g.type(w.value);
    bool same = to.dtype == from.dtype && to.sizes.size() == from.sizes.size();
    for (size_t d = 0; same && d < to.sizes.size(); ++d)
      same = to.sizes[d] == from.sizes[d] || arena.known(arena.eq(to.sizes[d], from.sizes[d])) != false;
    if (!same) broken("results", "a writeback changes dtype or sizes");
  }
}

}  // namespace braze::graph
