#include "passes/fold.h"

#include "passes/rewrite.h"

namespace braze::passes {
namespace {

// Copies and views hand on their first argument.
bool hands_on(Op op) {
  return op == Op::clone || op == Op::_to_copy || op == Op::contiguous || graph::op_class(op) == graph::OpClass::View;
}

// Whether it goes by a place in the storage of its first argument.
bool reads_storage(Op op) { return op == Op::as_strided || op == Op::as_strided_scatter; }

// Values whose place in their storage counts, as a view of them or they themselves are read by it.
std::vector<bool> placed(const Graph& g) {
  std::vector<bool> out(g.values().size(), false);
  for (size_t i = g.nodes().size(); i-- > 0;) {
    const Node& n = g.node(NodeId(i));
    const bool is_view = n.op != Op::Extern && graph::op_class(n.op) == graph::OpClass::View;
    const bool passes_on = is_view && n.outputs[0].valid() && out[n.outputs[0].index];
    auto* x = reads_storage(n.op) || passes_on ? std::get_if<ValueId>(n.args.data()) : nullptr;
    if (x && x->valid()) out[x->index] = true;
  }
  return out;
}

}  // namespace

Graph fold(const Graph& g) {
  std::vector<bool> leaves = escaping(g), by_place = placed(g);
  std::vector<bool> result(g.values().size(), false);
  for (ValueId v : g.outputs)
    if (v.valid()) result[v.index] = true;
  Rewriter r(g);
  for (const Node& n : g.nodes()) {
    if (n.op != Op::Extern && !g.leaves_float8(n) && n.outputs.size() == 1 && n.outputs[0].valid()) {
      ValueId out = n.outputs[0];
      bool is_view = graph::op_class(n.op) == graph::OpClass::View;
      const bool stays = (is_view ? result[out.index] : leaves[out.index] || by_place[out.index]) || !hands_on(n.op);
      auto* x = stays ? nullptr : std::get_if<ValueId>(n.args.data());
      if (x && same_type(g.type(*x), g.type(out))) {
        r.replace(out, r.map(*x));
        continue;
      }
      // Offsets of inputs count from their storage, those of fresh copies from zero: only the layout matters here.
      if (x && !is_view && g.type(*x).dtype == g.type(out).dtype && g.type(*x).device == g.type(out).device &&
          g.type(*x).sizes == g.type(out).sizes && g.type(*x).strides == g.type(out).strides) {
        r.replace(out, r.map(*x));
        continue;
      }
    }
    r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
