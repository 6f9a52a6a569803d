// Gradients of pools, pads and resampling: every element of the result's gradient is added to the places that it came
// from.
#include "lower/scatter.h"
#include "lower/window.h"

namespace braze::lower {

using graph::Op;
using graph::ValueId;

namespace {

std::span<const Expr> leading(const std::vector<Expr>& s, size_t windows) { return {s.data(), s.size() - windows}; }
std::span<const Expr> trailing(const std::vector<Expr>& s, size_t windows) { return std::span(s).last(windows); }
std::vector<Expr> join(std::span<const Expr> a, std::span<const Expr> b) {
  std::vector<Expr> out(a.begin(), a.end());
  out.insert(out.end(), b.begin(), b.end());
  return out;
}

size_t plane_dims(Op op) {
  return op == Op::max_pool3d_with_indices_backward || op == Op::adaptive_max_pool3d_backward ? 3 : 2;
}

// (grad, self, ..., indices): an index counts along the flattened plane of n dimensions.
void max_pool(Lowering& low, const graph::Node& node) {
  const size_t n = plane_dims(node.op);
  ValueId grad = tensor(node, 0), index = tensor(node, node.args.size() - 1);
  View target = start_from(low, node, {});
  const auto &in = sizes(low, grad), &out = target.sizes;
  Expr plane = low.arena.product(trailing(out, n));
  update(low, node, target, leading(in, n), trailing(in, n), true, [&](Body& b, auto i, auto r, const auto& put) {
    std::vector<Expr> from = join(i, r), at(i.begin(), i.end());
    at.resize(out.size() - 1, low.arena.constant(0));
    at.push_back(b.indirect(low.emit(b, index, from), plane, {loop::Fault::Index, false, 0}));
    put(at, Val{&b, low.emit(b, grad, from)});
  });
}

// (grad, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
void avg_pool(Lowering& low, const graph::Node& node) {
  ValueId grad = tensor(node, 0);
  sym::ExprArena& a = low.arena;
  View target = start_from(low, node, {});
  const auto& in = sizes(low, grad);
  auto w = window_of(a, node, target.sizes, in);
  const size_t n = w->size();
  const bool include_padding = std::get<bool>(node.args[6]);
  std::vector<Expr> points(trailing(in, n).begin(), trailing(in, n).end());
  for (const WindowDim& d : *w) points.push_back(a.constant(d.kernel));
  update(low, node, target, leading(in, n), points, true, [&](Body& b, auto i, auto r, const auto& put) {
    Val v{&b, low.emit(b, grad, join(i, r.first(n)))};
    Expr count = a.constant(1);
    std::vector<Expr> at(i.begin(), i.end());
    for (size_t k = 0; k < n; ++k) {
      const WindowDim& d = (*w)[k];
      count = a.mul(count, counted(a, d, r[k], include_padding));
      Expr e = a.add(d.start(a, r[k]), r[n + k]);
      if (!low.indexing.below(e, d.size)) {
        Val place{&b, b.index(e, DType::I64)};
        v = where((place >= 0.0) & (place < Val{&b, b.index(d.size, DType::I64)}), v, 0.0);
        e = a.max(a.min(e, a.sub(d.size, a.constant(1))), a.constant(0));
      }
      at.push_back(e);
    }
    if (auto* divisor = std::get_if<Expr>(&node.args[7])) count = *divisor;
    put(at, v / Val{&b, b.index(count, v.dtype())});
  });
}

// (grad, self, padding)
void pad(Lowering& low, const graph::Node& node, bool reflect) {
  ValueId grad = tensor(node, 0);
  const auto& by = std::get<graph::IntList>(node.args[2]).v;
  size_t n = by.size() / 2;
  View target = start_from(low, node, {});
  const auto& in = sizes(low, grad);
  update(low, node, target, leading(in, n), trailing(in, n), true, [&](Body& b, auto i, auto r, const auto& put) {
    std::vector<Expr> at = join(i, r);
    Val v{&b, low.emit(b, grad, at)};
    for (size_t k = 0; k < n; ++k) {
      size_t d = at.size() - 1 - k;
      at[d] = padded_place(low.arena, at[d], by[2 * k], target.sizes[d], reflect);
    }
    put(at, v);
  });
}

void reflection_pad(Lowering& low, const graph::Node& node) { pad(low, node, true); }
void replication_pad(Lowering& low, const graph::Node& node) { pad(low, node, false); }

// (grad, output_size, input_size, ...)
void upsample(Lowering& low, const graph::Node& node) {
  ValueId grad = tensor(node, 0);
  View target = start_from(low, node, {});
  const auto& in = sizes(low, grad);
  auto how = resample_of(low.arena, node, target.sizes, in);
  size_t n = how->size();
  update(low, node, target, leading(in, n), trailing(in, n), true, [&](Body& b, auto i, auto r, const auto& put) {
    Val g{&b, low.emit(b, grad, join(i, r))};
    std::vector<Expr> at(i.begin(), i.end());
    at.resize(i.size() + n);
    auto go = [&](auto& self, size_t k, std::optional<Val> weight) -> void {
      if (k == n) return put(at, weight ? *weight * g : g);
      for (const Tap& t : taps(low, b, (*how)[k], r[k], g.dtype())) {
        at[i.size() + k] = t.place;
        std::optional<Val> w = weight && t.weight ? std::optional<Val>(*weight * *t.weight)
                               : t.weight         ? t.weight
                                                  : weight;
        self(self, k + 1, w);
      }
    };
    go(go, 0, std::nullopt);
  });
}

using BackwardRule = void (*)(Lowering&, const graph::Node&);
BackwardRule backward_rule(Op op) {
  switch (op) {
    case Op::max_pool2d_with_indices_backward:
    case Op::max_pool3d_with_indices_backward:
    case Op::adaptive_max_pool2d_backward:
    case Op::adaptive_max_pool3d_backward: return max_pool;
    case Op::avg_pool2d_backward:
    case Op::avg_pool3d_backward: return avg_pool;
    case Op::reflection_pad1d_backward:
    case Op::reflection_pad2d_backward:
    case Op::reflection_pad3d_backward: return reflection_pad;
    case Op::replication_pad1d_backward:
    case Op::replication_pad2d_backward:
    case Op::replication_pad3d_backward: return replication_pad;
    case Op::upsample_nearest1d_backward:
    case Op::upsample_nearest2d_backward:
    case Op::upsample_nearest3d_backward:
    case Op::_upsample_nearest_exact1d_backward:
    case Op::_upsample_nearest_exact2d_backward:
    case Op::_upsample_nearest_exact3d_backward:
    case Op::upsample_bilinear2d_backward:
    case Op::upsample_bicubic2d_backward: return upsample;
    default: return nullptr;
  }
}

}  // namespace

bool takes_window_backward(const graph::Graph& g, const graph::Node& node) {
  sym::ExprArena& a = g.arena();
  if (!backward_rule(node.op)) return false;
  const TensorType &in = g.type(tensor(node, 0)), &out = g.type(node.outputs[0]);
  // Sums in a half type: eager keeps them in float.
  if (!is_floating(out.dtype) || size_of(out.dtype) < 4) return false;
  for (Expr s : out.sizes)
    if (a.is_const(s, 0)) return false;
  if (in.dim() != out.dim()) return false;
  switch (node.op) {
    case Op::max_pool2d_with_indices_backward:
    case Op::max_pool3d_with_indices_backward:
    case Op::adaptive_max_pool2d_backward:
    case Op::adaptive_max_pool3d_backward: {
      size_t n = out.dim(), planes = plane_dims(node.op);
      bool flat = n > planes && graph::is_non_overlapping_and_dense(a, out);
      for (size_t d = n - planes; flat && d + 1 < n; ++d)
        flat = a.known_equal(out.strides[d], a.mul(out.sizes[d + 1], out.strides[d + 1]));
      return flat;
    }
    case Op::avg_pool2d_backward:
    case Op::avg_pool3d_backward: return window_of(a, node, out.sizes, in.sizes).has_value();
    case Op::reflection_pad1d_backward:
    case Op::reflection_pad2d_backward:
    case Op::reflection_pad3d_backward:
    case Op::replication_pad1d_backward:
    case Op::replication_pad2d_backward:
    case Op::replication_pad3d_backward: return true;
    default: return resample_of(a, node, out.sizes, in.sizes).has_value();
  }
}

bool lower_window_backward(Lowering& low, const graph::Node& node) {
  auto rule = backward_rule(node.op);
  if (rule) rule(low, node);
  return rule;
}

}  // namespace braze::lower
