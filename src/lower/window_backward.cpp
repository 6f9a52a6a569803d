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

// (grad, self, ..., indices): an index counts along the flattened plane.
void max_pool(Lowering& low, const graph::Node& node) {
  ValueId grad = tensor(node, 0), index = tensor(node, 7);
  View target = start_from(low, node, {});
  const auto &in = sizes(low, grad), &out = target.sizes;
  Expr plane = low.arena.mul(out[out.size() - 2], out.back());
  update(low, node, target, leading(in, 2), trailing(in, 2), true, [&](Body& b, auto i, auto r, const auto& put) {
    std::vector<Expr> from = join(i, r);
    Expr at = b.indirect(low.emit(b, index, from), plane, {loop::Fault::Index, false, 0});
    Val v{&b, low.emit(b, grad, from)};
    put(join(i, std::vector<Expr>{low.arena.constant(0), at}), v);
  });
}

// (grad, self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
void avg_pool(Lowering& low, const graph::Node& node) {
  ValueId grad = tensor(node, 0);
  sym::ExprArena& a = low.arena;
  View target = start_from(low, node, {});
  auto w = window_of(a, node, 2, false, target.sizes);
  const auto& in = sizes(low, grad);
  std::vector<Expr> points =
      join(trailing(in, 2), std::vector<Expr>{a.constant((*w)[0].kernel), a.constant((*w)[1].kernel)});
  update(low, node, target, leading(in, 2), points, true, [&](Body& b, auto i, auto r, const auto& put) {
    Val v{&b, low.emit(b, grad, join(i, r.first(2)))};
    Expr count = a.constant(1);
    std::vector<Expr> at(i.begin(), i.end());
    for (size_t k = 0; k < 2; ++k) {
      const WindowDim& d = (*w)[k];
      count = a.mul(count, counted(a, d, r[k], std::get<bool>(node.args[6])));
      Expr e = a.add(d.at(a, r[k], a.constant(0)), r[2 + k]);
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

}  // namespace

bool takes_window_backward(const graph::Graph& g, const graph::Node& node) {
  sym::ExprArena& a = g.arena();
  switch (node.op) {
    case Op::max_pool2d_with_indices_backward:
    case Op::avg_pool2d_backward:
    case Op::reflection_pad1d_backward:
    case Op::reflection_pad2d_backward:
    case Op::reflection_pad3d_backward:
    case Op::replication_pad1d_backward:
    case Op::replication_pad2d_backward:
    case Op::replication_pad3d_backward:
    case Op::upsample_nearest2d_backward:
    case Op::upsample_bilinear2d_backward: break;
    default: return false;
  }
  const TensorType &in = g.type(tensor(node, 0)), &out = g.type(node.outputs[0]);
  if (!is_floating(out.dtype) || in.dim() != out.dim()) return false;
  // Sums in a half type: eager keeps them in float.
  if (size_of(out.dtype) < 4) return false;
  for (Expr s : out.sizes)
    if (a.is_const(s, 0)) return false;
  switch (node.op) {
    case Op::max_pool2d_with_indices_backward: {
      size_t n = out.dim();
      return n >= 3 && graph::is_non_overlapping_and_dense(a, out) &&
             a.known_equal(out.strides[n - 2], a.mul(out.sizes[n - 1], out.strides[n - 1]));
    }
    case Op::avg_pool2d_backward: return window_of(a, node, 2, false, out.sizes).has_value();
    case Op::upsample_nearest2d_backward:
    case Op::upsample_bilinear2d_backward: return resample_of(a, node, out.sizes, in.sizes).has_value();
    default: return true;
  }
}

bool lower_window_backward(Lowering& low, const graph::Node& node) {
  switch (node.op) {
    case Op::max_pool2d_with_indices_backward: max_pool(low, node); return true;
    case Op::avg_pool2d_backward: avg_pool(low, node); return true;
    case Op::reflection_pad1d_backward:
    case Op::reflection_pad2d_backward:
    case Op::reflection_pad3d_backward: pad(low, node, true); return true;
    case Op::replication_pad1d_backward:
    case Op::replication_pad2d_backward:
    case Op::replication_pad3d_backward: pad(low, node, false); return true;
    case Op::upsample_nearest2d_backward:
    case Op::upsample_bilinear2d_backward: upsample(low, node); return true;
    default: return false;
  }
}

}  // namespace braze::lower
