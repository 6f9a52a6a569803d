#include "passes/widen_products.h"

#include <algorithm>

#include "passes/builder.h"

namespace braze::passes {
namespace {

constexpr int64_t kMostElements = int64_t{1} << 28;  // of an operand, whose wide copy is 1 GiB

bool is_product(Op op) {
  switch (op) {
    case Op::mm:
    case Op::addmm:
    case Op::bmm:
    case Op::baddbmm:
    case Op::mv:
    case Op::addmv:
    case Op::convolution:
    case Op::convolution_backward:
    case Op::_scaled_dot_product_flash_attention_for_cpu:
    case Op::_scaled_dot_product_flash_attention_for_cpu_backward: return true;
    default: return false;
  }
}

bool is_half(DType dtype) { return dtype == DType::BF16 || dtype == DType::F16; }

bool is_slow(const Target& target, DType dtype) {
  return !target.is_gpu() &&
         ((dtype == DType::BF16 && target.slow_bf16_products) || (dtype == DType::F16 && target.slow_f16_products));
}

// Layers whose weight lies with a row for each column of the result: launch/extern_matmul.cpp has a kernel that reads
// the halves as they are, where the weights' wide form would take more time than a product of few rows.
bool has_kernel(const Graph& g, const Node& n) {
  const bool added = n.op == Op::addmm;
  if ((n.op != Op::mm && !added) || n.args.size() < size_t{2} + added || !n.outputs[0].valid()) return false;
  if (added && (!is_one_or_absent(g, n, 3) || !is_one_or_absent(g, n, 4))) return false;
  const sym::ExprArena& a = g.arena();
  auto type = [&](size_t i) -> const TensorType& { return g.type(std::get<ValueId>(n.args[i])); };
  const TensorType &rows = type(added), &weight = type(added + 1), &out = g.type(n.outputs[0]);
  const bool dense = a.is_const(rows.strides[1], 1) && a.is_const(weight.strides[0], 1);
  const bool bias = !added || (type(0).dim() == 1 && a.is_const(type(0).strides[0], 1) &&
                               type(0).sizes[0] == weight.sizes[1] && type(0).dtype == out.dtype);
  return dense && bias && rows.dtype == out.dtype && weight.dtype == out.dtype;
}

// Layers of one row are sums in a kernel (graph/narrow_product.h), which widens what it reads.
bool is_row(const Graph& g, const Node& n) {
  return (n.op == Op::mm || n.op == Op::addmm) && n.outputs[0].valid() &&
         g.arena().is_const(g.type(n.outputs[0]).sizes[0], 1);
}

// Whether what is slow is the node's operands.
bool takes(const Graph& g, const Node& n, const Targets& targets, bool rows) {
  if (!is_product(n.op) || n.outputs.empty() || (has_kernel(g, n) && !(rows && is_row(g, n)))) return false;
  const bool row = rows && is_row(g, n) && has_kernel(g, n);
  bool slow = false, small = true;
  Graph::for_each_operand(n, [&](ValueId v) {
    if (!v.valid()) return;
    const TensorType& t = g.type(v);
    const Target& target = targets.of(t.device);
    slow =
        slow || is_slow(target, t.dtype) || (row && !target.is_gpu() && target.slow_thin_products && is_half(t.dtype));
    auto elements = g.arena().as_const(g.arena().product(t.sizes));
    small = small && elements.value_or(0) <= kMostElements;
  });
  return slow && small;
}

void widen(Builder& b) {
  std::vector<Arg> args = b.args;
  for (Arg& a : args)
    if (auto* v = std::get_if<ValueId>(&a); v && v->valid() && is_half(b.type(*v).dtype)) a = b.cast(*v, DType::F32);
  std::vector<ValueId> made = b.calls(b.node.op, std::move(args));
  for (size_t i = 0; i < b.node.outputs.size(); ++i)
    if (b.wants(i)) b.set(i, made.at(i));
}

Graph widened(const Graph& g, const Targets& targets, bool rows) {
  auto taken = [&](const Node& n) { return takes(g, n, targets, rows); };
  if (std::none_of(g.nodes().begin(), g.nodes().end(), taken)) return g;
  Rewriter r(g);
  for (const Node& n : g.nodes())
    if (!taken(n) || !rewrite(r, n, g, widen)) r.copy(n);
  return r.finish();
}

}  // namespace

Graph widen_products(const Graph& g, const Targets& targets) { return widened(g, targets, true); }

Graph widen_weights(const Graph& g, const Targets& targets) { return widened(g, targets, false); }

}  // namespace braze::passes
