#include "passes/select_parts.h"

#include <algorithm>

#include "graph/narrow_product.h"
#include "passes/builder.h"

namespace braze::passes {
namespace {

constexpr size_t kMostParts = 8;            // as many as a word has groups of four bits
constexpr int64_t kMostElements = 1 << 16;  // of the result: more are worth whole vectors

bool is_small(const Graph& g, const Targets& targets, const Node& n) {
  const TensorType& out = g.type(n.outputs[0]);
  if (n.op != Op::cat || !targets.of(out.device).is_gpu()) return false;
  int64_t elements = 1;
  for (Expr s : out.sizes) {
    auto size = g.arena().as_const(s);
    if (!size || *size > kMostElements) return false;
    elements *= *size;
    if (elements > kMostElements) return false;
  }
  return elements > 0;
}

constexpr size_t kMostInterleaved = 4;

// Parts that lie side by side element by element, as the halves of complex numbers. Written one by one, each pass of a
// GPU moves whole lines of memory for some of their bytes.
bool is_interleaved(const Graph& g, const Targets& targets, const Node& n) {
  const TensorType& out = g.type(n.outputs[0]);
  if (n.op != Op::stack || n.args.size() < 2 || !targets.of(out.device).is_gpu()) return false;
  const auto d = g.arena().as_const(std::get<Expr>(n.args[1]));
  const auto last = static_cast<int64_t>(out.dim()) - 1;
  return (d == -1 || d == last) && std::get<TensorList>(n.args[0]).size() <= kMostInterleaved;
}

// Few parts that are of the result's type: cat's as they are, or stack's.
bool has_parts(const Graph& g, const Node& n) {
  if ((n.op != Op::cat && n.op != Op::stack) || n.args.empty() || n.outputs.size() != 1 || !n.outputs[0].valid())
    return false;
  auto* parts = std::get_if<TensorList>(&n.args[0]);
  const TensorType& out = g.type(n.outputs[0]);
  if (!parts || parts->size() < 2 || parts->size() > kMostParts || out.dim() == 0) return false;
  return std::all_of(parts->begin(), parts->end(), [&](ValueId v) {
    return v.valid() && g.type(v).dtype == out.dtype && g.type(v).dim() + (n.op == Op::stack) == out.dim();
  });
}

// On a CPU a choice between cat's parts, of which each is read under a mask, takes longer than putting them together.
bool is_cheap(const Graph& g, const Targets& targets, const Node& n) {
  return n.op == Op::stack || targets.of(g.type(n.outputs[0]).device).is_gpu();
}

// Per value: part of the formula of a matrix that is multiplied where it is read (graph/narrow_product.h), and of
// nothing else.
std::vector<bool> in_products(const Graph& g, const Targets& targets) {
  std::vector<bool> out(g.values().size(), false);
  const std::vector<uint32_t> uses = use_counts(g);
  for (size_t i = g.nodes().size(); i-- > 0;) {
    const Node& n = g.node(NodeId(i));
    if (graph::is_narrow_product(g, n, targets) || graph::is_thin_product(g, n, targets)) {
      const ValueId matrix = std::get<ValueId>(n.args[n.op == Op::addmm ? 2 : 1]);
      if (uses[matrix.index] == 1) out[matrix.index] = true;
      continue;
    }
    const graph::OpClass c = graph::op_class(n.op);
    if (c != graph::OpClass::Pointwise && c != graph::OpClass::View && !has_parts(g, n)) continue;
    if (n.outputs.size() != 1 || !n.outputs[0].valid() || !out[n.outputs[0].index]) continue;
    Graph::for_each_operand(n, [&](ValueId v) {
      if (v.valid() && uses[v.index] == 1) out[v.index] = true;
    });
  }
  return out;
}

// A choice by the index along d, in which part i takes sizes[i] places; each part as wide as the result.
ValueId choose(Builder& b, const std::vector<ValueId>& parts, const std::vector<int64_t>& first, size_t d) {
  const TensorType& out = b.result(0);
  std::vector<Expr> along(out.dim(), b.k(1));
  along[d] = out.sizes[d];
  ValueId place = b.view(
      b.call(Op::arange_start_step, {b.k(0), out.sizes[d], b.k(1), DType::I64, NoneArg{}, out.device, NoneArg{}}),
      along);
  ValueId all = parts[0];
  for (size_t i = 1; i < parts.size(); ++i) all = b.where(b.call(Op::lt_Scalar, {place, b.k(first[i])}), all, parts[i]);
  return all;
}

bool select(Builder& b) {
  const auto& parts = std::get<TensorList>(b.args[0]);
  const TensorType& out = b.result(0);
  const size_t d = b.args.size() > 1 ? b.dim(1, out.dim()) : 0;
  auto whole = b.arena().as_const(out.sizes[d]);
  if (!whole) return false;
  std::vector<ValueId> wide;
  std::vector<int64_t> first;
  int64_t from = 0;
  for (ValueId part : parts) {
    first.push_back(from);
    if (b.node.op == Op::stack) {
      wide.push_back(b.unsqueeze(part, static_cast<int64_t>(d)));
      ++from;
      continue;
    }
    auto size = b.arena().as_const(b.type(part).sizes[d]);
    if (!size) return false;
    std::vector<int64_t> around(2 * (out.dim() - d), 0);
    around[around.size() - 2] = from;
    around[around.size() - 1] = *whole - from - *size;
    wide.push_back(b.call(Op::constant_pad_nd, {part, b.list(around), b.k(0)}));
    from += *size;
  }
  if (from != *whole) return false;
  b.set(0, choose(b, wide, first, d));
  return true;
}

}  // namespace

Graph select_parts(const Graph& g, const Targets& targets) {
  Rewriter r(g);
  const bool any = std::any_of(g.nodes().begin(), g.nodes().end(), [&](const Node& n) { return has_parts(g, n); });
  const std::vector<bool> multiplied = any ? in_products(g, targets) : std::vector<bool>(g.values().size(), false);
  for (const Node& n : g.nodes()) {
    const bool chosen = has_parts(g, n) && (is_small(g, targets, n) || is_interleaved(g, targets, n) ||
                                            (multiplied[n.outputs[0].index] && is_cheap(g, targets, n)));
    if (!chosen || !rewrite(r, n, g, select)) r.copy(n);
  }
  return r.finish();
}

}  // namespace braze::passes
