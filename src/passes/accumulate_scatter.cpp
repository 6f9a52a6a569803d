#include "passes/accumulate_scatter.h"

#include "passes/builder.h"

namespace braze::passes {
namespace {

bool is_zeros(const Graph& g, ValueId v) {
  NodeId made = g.value(v).node;
  if (!made.valid()) return false;
  const Node& n = g.node(made);
  switch (n.op) {
    case Op::zeros:
    case Op::zeros_like:
    case Op::new_zeros: return true;
    case Op::full:
    case Op::full_like: return is_number(g, n.args.at(1), 0);
    default: return false;
  }
}

// The scatter whose sums are `v`, onto zeros.
const Node* scatter_of(const Graph& g, ValueId v) {
  NodeId made = g.value(v).node;
  if (!made.valid()) return nullptr;
  const Node& n = g.node(made);
  auto onto_zeros = [&] { return is_zeros(g, std::get<ValueId>(n.args[0])); };
  switch (n.op) {
    case Op::embedding_dense_backward: return std::get<bool>(n.args[4]) ? nullptr : &n;
    case Op::scatter_add:
    case Op::index_add: return onto_zeros() ? &n : nullptr;
    case Op::index_put:
    case Op::_unsafe_index_put: return n.args.size() > 3 && std::get<bool>(n.args[3]) && onto_zeros() ? &n : nullptr;
    default: return nullptr;
  }
}

// The scatter's sums, begun with `start`.
ValueId onto(Builder& b, const Node& scatter, std::vector<Arg> args, ValueId start) {
  if (scatter.op != Op::embedding_dense_backward) {
    args[0] = start;
    return b.call(scatter.op, std::move(args));
  }
  Arg grad = args[0];
  ValueId index = std::get<ValueId>(args[1]);
  if (b.arena().range(std::get<Expr>(args[3])).hi >= 0) {
    ValueId padding = b.unsqueeze(b.call(Op::eq_Scalar, {index, args[3]}), static_cast<int64_t>(b.rank(index)));
    grad = b.where(padding, 0.0, grad);
  }
  return b.call(Op::index_put, {start, TensorList{index}, grad, true});
}

}  // namespace

Graph accumulate_scatter(const Graph& g) {
  std::vector<uint32_t> uses = use_counts(g);
  Rewriter r(g);
  for (const Node& n : g.nodes()) {
    const TensorType* t = n.op == Op::add_Tensor ? &g.type(n.outputs[0]) : nullptr;
    bool done = false;
    for (size_t i = 0; t && i < 2 && !done; ++i) {
      auto *sums = std::get_if<ValueId>(&n.args[i]), *start = std::get_if<ValueId>(&n.args[1 - i]);
      if (!sums || !start || *sums == *start || uses[sums->index] != 1 || !is_one_or_absent(g, n, 2)) continue;
      const Node* scatter = scatter_of(g, *sums);
      const TensorType &a = g.type(*sums), &s = g.type(*start);
      bool takes = scatter && (t->dtype == DType::F32 || t->dtype == DType::F64) && a.dtype == t->dtype &&
                   s.dtype == t->dtype && a.sizes == t->sizes && s.sizes == t->sizes && a.device == s.device;
      if (!takes) continue;
      done = rewrite(r, n, g, [&](Builder& b) { b.set(0, onto(b, *scatter, r.map_args(*scatter), r.map(*start))); });
    }
    if (!done) r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
