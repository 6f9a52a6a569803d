#include "autodiff/cost.h"

#include <algorithm>
#include <numeric>

#include "graph/random.h"

namespace braze::autodiff {

using graph::Op;
using graph::OpClass;
using graph::ValueId;

namespace {

constexpr int64_t kMost = int64_t{1} << 50;

// The value with every symbol at kUnknownSize, roughly: no division fails, and nothing overflows.
int64_t size_or_guess(const sym::ExprArena& arena, sym::Expr e) {
  if (auto size = arena.as_const(e)) return *size;
  std::vector<int64_t> of;
  for (sym::Expr operand : arena.operands(e)) of.push_back(std::clamp(size_or_guess(arena, operand), -kMost, kMost));
  auto product = [](int64_t a, int64_t b) {
    return static_cast<int64_t>(
        std::clamp(static_cast<double>(a) * static_cast<double>(b), -double(kMost), double(kMost)));
  };
  switch (arena.kind(e)) {
    case sym::Kind::Add: return std::accumulate(of.begin(), of.end(), int64_t{0});
    case sym::Kind::Mul: return std::accumulate(of.begin(), of.end(), int64_t{1}, product);
    case sym::Kind::FloorDiv: return of[0] / std::max<int64_t>(of[1], 1);
    case sym::Kind::Mod: return of[1];
    case sym::Kind::Min: return *std::min_element(of.begin(), of.end());
    case sym::Kind::Max: return *std::max_element(of.begin(), of.end());
    default: return kUnknownSize;
  }
}

// A product that passes/chunk_logits.h cut so that what it makes need not be kept.
bool is_done_again(const graph::Node& node) {
  const size_t mark = node.op == Op::mm ? 2 : node.op == Op::addmm ? 5 : SIZE_MAX;
  return mark < node.args.size() && node.args[mark] == graph::Arg(std::string("again"));
}

}  // namespace

int64_t elements_of(const graph::Graph& g, ValueId v) {
  int64_t n = 1;
  for (sym::Expr e : g.type(v).sizes)
    n = std::min<int64_t>(n * std::max<int64_t>(size_or_guess(g.arena(), e), 0), kMost);
  return n;
}

int64_t bytes_of(const graph::Graph& g, ValueId v) { return elements_of(g, v) * size_of(g.type(v).dtype); }

Repeat repeat(const graph::Graph& g, const graph::Node& node) {
  if (graph::traits_of(node) & (graph::kEffect | graph::kNondeterministic)) return Repeat::Never;
  for (ValueId v : node.outputs)
    if (v.valid() && (is_complex(g.type(v).dtype) || g.type(v).dtype == DType::Opaque)) return Repeat::Dear;
  if (is_done_again(node)) return Repeat::Fused;
  switch (graph::op_row(node.op).cost) {
    case graph::Cost::Free: return Repeat::Free;
    case graph::Cost::Cheap:
    case graph::Cost::Expensive: return Repeat::Fused;
    case graph::Cost::Dear: return Repeat::Dear;
  }
  return Repeat::Dear;
}

int64_t work_per_byte(const graph::Graph& g, const graph::Node& node) {
  int64_t in = 0, out = 1;
  graph::Graph::for_each_operand(node, [&](ValueId v) { in += elements_of(g, v); });
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
