#include "graph/pointwise_convolution.h"

#include <algorithm>

#include "graph/convolution.h"

namespace braze::graph {
namespace {

constexpr int64_t kMostWork = 12 << 20;  // multiplications

bool is_all(const Graph& g, const IntList& list, int64_t number) {
  return !list.v.empty() && std::ranges::all_of(list.v, [&](sym::Expr e) { return g.arena().is_const(e, number); });
}

}  // namespace

bool is_pointwise_convolution(const Graph& g, const Node& n, const Targets& targets) {
  auto c = convolution_of(g, n);
  if (!c || c->result->dtype != DType::F32) return false;
  const Target& target = targets.of(c->result->device);
  if (target.is_gpu() || !target.strips) return false;
  const sym::ExprArena& a = g.arena();
  const auto &out = c->result->sizes, &window = c->weight->sizes;
  if (!a.is_const(c->groups, 1) || !a.is_const(window[2], 1) || !a.is_const(window[3], 1)) return false;
  if (!is_all(g, *c->stride, 1) || !is_all(g, *c->padding, 0) || !is_all(g, *c->dilation, 1)) return false;
  int64_t work = 1;
  for (sym::Expr e : {out[0], out[1], out[2], out[3], window[1]}) {
    auto size = a.as_const(e);
    if (!size || *size < 1 || *size > kMostWork) return false;
    work *= *size;
    if (work > kMostWork) return false;
  }
  return true;
}

bool is_pointwise_convolution_kernel(const Graph& g, const Node& n, const Targets& targets) {
  if (!is_pointwise_convolution(g, n, targets)) return false;
  const Convolution c = *convolution_of(g, n);
  auto next = [&](const TensorType& t, size_t dim) { return g.arena().is_const(t.strides[dim], 1); };
  const bool planes = next(*c.x, 3) && next(*c.result, 3),
             pixels = next(*c.x, 1) && next(*c.result, 1) && next(*c.weight, 0);
  const auto& sizes = c.result->sizes;
  const bool one = g.arena().is_const(sizes[2], 1) && g.arena().is_const(sizes[3], 1) && next(*c.x, 1);
  return planes || pixels || one;
}

}  // namespace braze::graph
