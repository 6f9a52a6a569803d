#include "autodiff/cost.h"

#include <algorithm>

#include "graph/random.h"

namespace braze::autodiff {

using graph::Op;
using graph::OpClass;
using graph::ValueId;

namespace {

int64_t size_or_guess(const sym::ExprArena& arena, sym::Expr e) { return arena.as_const(e).value_or(kUnknownSize); }

int64_t elements(const graph::Graph& g, ValueId v) {
  int64_t n = 1;
  for (sym::Expr e : g.type(v).sizes) n = std::min<int64_t>(n * std::max<int64_t>(size_or_guess(g.arena(), e), 0), int64_t{1} << 50);
  return n;
}

// Operators that read by computed indices without writing: lowering inlines them.
bool reads_by_index(Op op) {
  switch (op) {
    case Op::embedding:
    case Op::gather:
    case Op::index_Tensor:
    case Op::_unsafe_index_Tensor:
    case Op::index_select:
    case Op::cat:
    case Op::stack:
    case Op::flip:
    case Op::roll:
    case Op::repeat:
    case Op::constant_pad_nd:
    case Op::tril:
    case Op::triu:
    case Op::slice_backward:
    case Op::select_backward: return true;
    default: return false;
  }
}

}  // namespace

int64_t bytes_of(const graph::Graph& g, ValueId v) { return elements(g, v) * size_of(g.type(v).dtype); }

Repeat repeat(const graph::Graph& g, const graph::Node& node) {
  if (graph::traits_of(node) & (graph::kEffect | graph::kNondeterministic)) return Repeat::Never;
  for (ValueId v : node.outputs)
    if (v.valid() && (is_complex(g.type(v).dtype) || g.type(v).dtype == DType::Opaque)) return Repeat::Dear;
  switch (graph::op_class(node.op)) {
    case OpClass::View:
    case OpClass::Factory: return Repeat::Free;
    case OpClass::Pointwise: return Repeat::Fused;
    case OpClass::Index: return reads_by_index(node.op) ? Repeat::Fused : Repeat::Dear;
    case OpClass::Random: return Repeat::Fused;  // seeded
    default: return Repeat::Dear;
  }
}

int64_t work_per_byte(const graph::Graph& g, const graph::Node& node) {
  int64_t in = 0, out = 1;
  graph::Graph::for_each_operand(node, [&](ValueId v) { in += elements(g, v); });
  for (ValueId v : node.outputs)
    if (v.valid()) out += bytes_of(g, v);
  switch (graph::op_class(node.op)) {
    case OpClass::Pointwise:
    case OpClass::Index: return 1;
    case OpClass::Reduction: return 2 + in / out;
    case OpClass::Matmul:
    case OpClass::Attention: {
      int64_t inner = 1;
      graph::Graph::for_each_operand(node, [&](ValueId v) {
        if (!g.type(v).sizes.empty()) inner = std::max(inner, size_or_guess(g.arena(), g.type(v).sizes.back()));
      });
      return 10 + inner;
    }
    case OpClass::Conv: return 1000 + in / out;
    default: return 100;
  }
}

}  // namespace braze::autodiff
