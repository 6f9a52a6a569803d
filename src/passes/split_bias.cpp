#include "passes/split_bias.h"

#include "passes/rewrite.h"

namespace braze::passes {
namespace {

using graph::OpClass;

// Values that only pointwise kernels and reductions read, also through views.
std::vector<bool> read_by_kernels(const Graph& g) {
  std::vector<bool> read(g.values().size(), false), other(g.values().size(), false);
  for (ValueId v : g.outputs)
    if (v.valid()) other[v.index] = true;
  for (const graph::Writeback& w : g.writebacks) other[w.value.index] = true;
  for (size_t i = g.nodes().size(); i-- > 0;) {
    const Node& n = g.node(NodeId(i));
    OpClass c = graph::op_class(n.op);
    bool kernel = c == OpClass::Pointwise || c == OpClass::Reduction, call = !kernel && c != OpClass::View;
    bool passed_on = false;
    if (c == OpClass::View)
      for (ValueId v : n.outputs) {
        if (!v.valid()) continue;
        call |= other[v.index];
        passed_on |= read[v.index];
      }
    Graph::for_each_operand(n, [&](ValueId v) {
      if (call) other[v.index] = true;
      if (kernel || passed_on) read[v.index] = true;
    });
  }
  for (size_t i = 0; i < read.size(); ++i) read[i] = read[i] && !other[i];
  return read;
}

bool is_one(const Graph& g, const Arg& a) {
  if (auto* d = std::get_if<double>(&a)) return *d == 1;
  if (auto* b = std::get_if<bool>(&a)) return *b;
  auto* e = std::get_if<sym::Expr>(&a);
  return e && g.arena().is_const(*e, 1);
}

bool adds_bias(const Graph& g, const Node& n) {
  if ((n.op != Op::addmm && n.op != Op::baddbmm) || n.args.size() != 5 || n.outputs.size() != 1 || !n.outputs[0].valid()) return false;
  DType dtype = g.type(n.outputs[0]).dtype;
  return (dtype == DType::F32 || dtype == DType::F64) && is_one(g, n.args[3]) && is_one(g, n.args[4]);
}

}  // namespace

Graph split_bias(const Graph& g) {
  std::vector<bool> fuses = read_by_kernels(g);
  Rewriter r(g);
  for (const Node& n : g.nodes()) {
    if (!adds_bias(g, n) || !fuses[n.outputs[0].index]) {
      r.copy(n);
      continue;
    }
    std::vector<Arg> args = r.map_args(n);
    const TensorType& type = g.type(n.outputs[0]);
    NodeId product = r.out().add_node(n.op == Op::addmm ? Op::mm : Op::bmm, {args[1], args[2]}, {type}, n.loc);
    ValueId product_value = r.out().node(product).outputs[0];
    NodeId sum = r.out().add_node(Op::add_Tensor, {product_value, args[0], g.arena().constant(1)}, {type}, n.loc);
    r.replace(n.outputs[0], r.out().node(sum).outputs[0]);
  }
  return r.finish();
}

}  // namespace braze::passes
