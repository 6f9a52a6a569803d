#include "autodiff/masks.h"

#include <algorithm>

#include "graph/random.h"
#include "passes/rewrite.h"

namespace braze::autodiff {

using graph::Graph;
using graph::NoneArg;
using graph::Op;
using graph::ValueId;

namespace {

bool draws_mask(const graph::Node& n) {
  return !graph::is_seeded(n) && (n.op == Op::bernoulli || n.op == Op::bernoulli_p || n.op == Op::bernoulli_Tensor);
}

ValueId cast(Graph& g, ValueId v, DType dtype, graph::Origin origin) {
  TensorType type = g.type(v);
  type.dtype = dtype;
  graph::NodeId n = g.add_node(Op::_to_copy, {v, dtype, NoneArg{}, NoneArg{}, NoneArg{}, false, NoneArg{}},
                               {std::move(type)}, origin);
  return g.node(n).outputs[0];
}

}  // namespace

Graph narrow_masks(const Graph& joint) {
  if (std::none_of(joint.nodes().begin(), joint.nodes().end(), draws_mask)) return joint;
  passes::Rewriter r(joint);
  for (const graph::Node& n : joint.nodes()) {
    graph::NodeId made = r.copy(n);
    if (!draws_mask(n) || !is_floating(joint.type(n.outputs[0]).dtype)) continue;
    ValueId mask = n.outputs[0];
    ValueId narrow = cast(r.out(), r.out().node(made).outputs[0], DType::Bool, n.origin());
    r.replace(mask, cast(r.out(), narrow, joint.type(mask).dtype, n.origin()));
  }
  return r.finish();
}

}  // namespace braze::autodiff
