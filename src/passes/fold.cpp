#include "passes/fold.h"

#include <algorithm>

#include "passes/rewrite.h"

namespace braze::passes {
namespace {

// The argument that the node's result equals, when that is so whatever its value.
int identity_operand(const Graph& g, const Node& n, DType dtype) {
  auto is = [&](size_t i, double v) { return i < n.args.size() && is_number(g, n.args[i], v); };
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (n.op) {
    case Op::clone: case Op::_to_copy: case Op::contiguous: return 0;
    case Op::mul_Tensor: case Op::mul_Scalar: return is(1, 1) ? 0 : is(0, 1) ? 1 : -1;
    case Op::div_Tensor: case Op::div_Scalar: return is(1, 1) ? 0 : -1;
    case Op::sub_Tensor: case Op::sub_Scalar: return is(1, 0) ? 0 : -1;
    case Op::add_Tensor: case Op::add_Scalar: return !is_floating(dtype) && is(1, 0) ? 0 : -1;
    default: break;
  }
  // clang-format on
  return graph::op_class(n.op) == graph::OpClass::View ? 0 : -1;
}

}  // namespace

Graph fold(const Graph& g) {
  std::vector<bool> leaves = escaping(g);
  std::vector<bool> result(g.values().size(), false);
  for (ValueId v : g.outputs)
    if (v.valid()) result[v.index] = true;
  Rewriter r(g);
  for (const Node& n : g.nodes()) {
    if (n.op != Op::Extern && !g.leaves_float8(n) && n.outputs.size() == 1 && n.outputs[0].valid()) {
      ValueId out = n.outputs[0];
      bool is_view = graph::op_class(n.op) == graph::OpClass::View;
      int i = (is_view ? result[out.index] : leaves[out.index]) ? -1 : identity_operand(g, n, g.type(out).dtype);
      auto* x = i >= 0 ? std::get_if<ValueId>(&n.args[static_cast<size_t>(i)]) : nullptr;
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
