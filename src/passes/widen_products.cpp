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

// Whether what is slow is the node's operands.
bool takes(const Graph& g, const Node& n, const Targets& targets) {
  if (!is_product(n.op) || n.outputs.empty()) return false;
  bool slow = false, small = true;
  Graph::for_each_operand(n, [&](ValueId v) {
    if (!v.valid()) return;
    const TensorType& t = g.type(v);
    slow = slow || is_slow(targets.of(t.device), t.dtype);
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

}  // namespace

Graph widen_products(const Graph& g, const Targets& targets) {
  if (std::none_of(g.nodes().begin(), g.nodes().end(), [&](const Node& n) { return takes(g, n, targets); })) return g;
  Rewriter r(g);
  for (const Node& n : g.nodes())
    if (!takes(g, n, targets) || !rewrite(r, n, g, widen)) r.copy(n);
  return r.finish();
}

}  // namespace braze::passes
