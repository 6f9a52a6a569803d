#include "passes/unfuse_bias.h"

#include "graph/depthwise.h"
#include "passes/builder.h"

namespace braze::passes {

using graph::OpClass;

Graph unfuse_bias(const Graph& g, const Targets& targets) {
  // Whether all that reads a value, also through views, is computed in kernels.
  std::vector<char> in_kernels(g.values().size(), 1);
  for (ValueId v : g.outputs)
    if (v.valid()) in_kernels[v.index] = 0;
  for (const graph::Writeback& w : g.writebacks) in_kernels[w.value.index] = 0;
  for (size_t i = g.nodes().size(); i-- > 0;) {
    const Node& n = g.node(graph::NodeId(i));
    OpClass c = n.op == Op::Extern ? OpClass::Extern : graph::op_class(n.op);
    bool kernel = c == OpClass::Pointwise || c == OpClass::Reduction;
    if (c == OpClass::View) {
      kernel = true;
      for (ValueId v : n.outputs) kernel = kernel && v.valid() && in_kernels[v.index];
    }
    if (!kernel)
      Graph::for_each_operand(n, [&](ValueId v) {
        if (v.valid()) in_kernels[v.index] = 0;
      });
  }
  Rewriter r(g);
  // The library adds a convolution's bias in a pass of its own: what reads the result may as well.
  auto convolution_apart = [&](const Node& n) {
    auto* bias = n.args.size() == 9 ? std::get_if<ValueId>(&n.args[2]) : nullptr;
    if (n.op != Op::convolution || n.outputs.size() != 1 || !n.outputs[0].valid() || !bias || !bias->valid() ||
        !in_kernels[n.outputs[0].index] || graph::is_depthwise(g, n, targets))
      return false;
    const TensorType& t = g.type(n.outputs[0]);
    if (!targets.of(t.device).biases_convolutions_apart || t.dim() < 3 || g.type(*bias).dtype != t.dtype) return false;
    std::vector<Arg> args = r.map_args(n);
    args[2] = graph::NoneArg{};
    ValueId product = r.out().node(r.copy(n, std::move(args))).outputs[0];
    // Of open sizes the order of the sum's dimensions may not be known.
    return rewrite(r, n, g, [&](Builder& b) {
      std::vector<Expr> along(t.dim() - 1, b.k(1));
      along[0] = t.sizes[1];
      b.set(0, b.add(product, b.view(r.map(*bias), along)));
    });
  };
  for (const Node& n : g.nodes()) {
    if (convolution_apart(n)) continue;
    bool takes = (n.op == Op::addmm || n.op == Op::baddbmm) && n.outputs.size() == 1 && n.outputs[0].valid() &&
                 in_kernels[n.outputs[0].index] && is_one_or_absent(g, n, 3) && is_one_or_absent(g, n, 4);
    if (takes) {
      const TensorType& t = g.type(n.outputs[0]);
      auto* bias = std::get_if<ValueId>(&n.args[0]);
      // Half types would be rounded twice.
      bool costs = !targets.of(t.device).adds_matrix_free || (n.op == Op::addmm && bias && g.type(*bias).dim() == 1);
      takes = costs && (t.dtype == DType::F32 || t.dtype == DType::F64) && bias;
    }
    auto apart = [&](Builder& b) {
      std::vector<Arg> factors{b.tensor(1), b.tensor(2)};
      if (n.op == Op::addmm && b.args.size() > 5) factors.push_back(b.args[5]);  // a mark (see graph/ops.def)
      b.set(0, b.add(b.call(n.op == Op::addmm ? Op::mm : Op::bmm, std::move(factors)), b.tensor(0)));
    };
    if (!takes || !rewrite(r, n, g, apart)) r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
