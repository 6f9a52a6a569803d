// Pools, pads and resampling: one element of each, the window's elements written out.
#include "lower/window.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "lower/scatter.h"

namespace braze::lower {

using graph::Op;
using graph::ValueId;

namespace {
constexpr int64_t kMaxTaps = 16, kMaxTaps3d = 27;  // of a window: each is a load in the loop's body

// The elements of the window at p, each with its place in the plane and whether it lies inside (absent: it does).
struct Element {
  Val value, place;
  std::optional<Val> inside;
};
template <class F>
void each_tap(const Point& p, ValueId from, const std::vector<WindowDim>& w, F&& f) {
  sym::ExprArena& a = p.low.arena;
  const size_t first = p.index.size() - w.size();
  std::vector<Expr> at(p.index.begin(), p.index.end());
  auto go = [&](auto& self, size_t k, Expr plane, std::optional<Val> inside) -> void {
    if (k == w.size()) return f(Element{p.at(from, at), p.wrap(p.body.index(plane, DType::I64)), inside});
    for (int64_t tap = 0; tap < w[k].kernel; ++tap) {
      std::optional<Val> here = inside;
      Expr e = w[k].at(a, p.index[first + k], a.constant(tap));
      at[first + k] = place_inside(p.low, p.body, e, w[k].size, here);
      if (w[k].to && tap >= w[k].least) {
        Val in =
            p.wrap(p.body.index(e, DType::I64)) < p.wrap(p.body.index(w[k].end(a, p.index[first + k]), DType::I64));
        here = here ? *here & in : in;
      }
      self(self, k + 1, a.add(a.mul(plane, w[k].size), e), here);
    }
  };
  go(go, 0, a.constant(0), std::nullopt);
}

Val max_pool(const Point& p) {
  ValueId from = tensor(p.node, 0);
  auto w = window_of(p.low.arena, p.node, sizes(p.low, from), p.type().sizes);
  Val best, place;
  bool first = true, any = false;  // any: an element inside was met for sure
  std::optional<Val> met;          // whether one was met
  each_tap(p, from, *w, [&](const Element& e) {
    if (first && !e.inside) {
      best = e.value, place = e.place;
    } else {
      if (first) best = e.value.same(-std::numeric_limits<double>::infinity()), place = e.place;
      Val takes = (e.value > best) | isnan(e.value);
      // A place outside is never the answer: the first one inside is, where nothing is greater than -inf.
      if (p.output() == 1 && !any)
        takes = met ? takes | ~*met : truth(p.wrap(p.body.constant(int64_t{1}, DType::Bool)));
      if (e.inside) takes = takes & *e.inside;
      best = where(takes, e.value, best);
      place = where(takes, e.place, place);
    }
    any = any || !e.inside;
    if (e.inside && p.output() == 1) met = met ? *met | *e.inside : *e.inside;
    first = false;
  });
  return p.output() == 0 ? best : place;
}

Val avg_pool(const Point& p) {
  ValueId from = tensor(p.node, 0);
  auto w = window_of(p.low.arena, p.node, sizes(p.low, from), p.type().sizes);
  std::optional<Val> sum;
  each_tap(p, from, *w, [&](const Element& e) {
    Val x = e.inside ? where(*e.inside, e.value, 0.0) : e.value;
    sum = sum ? *sum + x : x;
  });
  const size_t first = p.index.size() - w->size();
  sym::ExprArena& a = p.low.arena;
  if (!p.none(6)) return *sum / p.wrap(p.body.index(std::get<Expr>(p.arg(6)), sum->dtype()));
  Expr count = a.constant(1);
  for (size_t k = 0; k < w->size(); ++k)
    count = a.mul(count, counted(a, (*w)[k], p.index[first + k], p.args() > 5 && std::get<bool>(p.arg(5))));
  return *sum / p.wrap(p.body.index(count, sum->dtype()));
}

Val pad(const Point& p, bool reflect) {
  ValueId from = tensor(p.node, 0);
  const auto& own = sizes(p.low, from);
  const auto& by = std::get<graph::IntList>(p.arg(1)).v;
  std::vector<Expr> at(p.index.begin(), p.index.end());
  for (size_t k = 0; 2 * k < by.size(); ++k) {
    size_t d = at.size() - 1 - k;
    at[d] = padded_place(p.low.arena, at[d], by[2 * k], own[d], reflect);
  }
  return p.at(from, at);
}
Val reflection_pad(const Point& p) { return pad(p, true); }
Val replication_pad(const Point& p) { return pad(p, false); }

Val interpolate(const Point& p, ValueId from, std::vector<Expr>& at, const std::vector<std::vector<Tap>>& by,
                size_t k) {
  if (k == by.size()) return p.at(from, at);
  std::optional<Val> sum;
  for (const Tap& t : by[k]) {
    at[at.size() - by.size() + k] = t.place;
    Val x = interpolate(p, from, at, by, k + 1);
    if (t.weight) x = x * *t.weight;
    sum = sum ? *sum + x : x;
  }
  return *sum;
}

Val upsample(const Point& p) {
  ValueId from = tensor(p.node, 0);
  auto how = resample_of(p.low.arena, p.node, sizes(p.low, from), p.type().sizes);
  std::vector<Expr> at(p.index.begin(), p.index.end());
  std::vector<std::vector<Tap>> by;
  for (size_t k = 0; k < how->size(); ++k)
    by.push_back(taps(p.low, p.body, (*how)[k], at[at.size() - how->size() + k], p.dtype()));
  return interpolate(p, from, at, by, 0);
}

}  // namespace

ElementRule window_rule(Op op) {
  switch (op) {
    case Op::max_pool2d_with_indices:
    case Op::max_pool3d_with_indices:
    case Op::adaptive_max_pool2d:
    case Op::adaptive_max_pool3d: return max_pool;
    case Op::avg_pool2d:
    case Op::avg_pool3d:
    case Op::_adaptive_avg_pool2d:
    case Op::_adaptive_avg_pool3d: return avg_pool;
    case Op::reflection_pad1d:
    case Op::reflection_pad2d:
    case Op::reflection_pad3d: return reflection_pad;
    case Op::replication_pad1d:
    case Op::replication_pad2d:
    case Op::replication_pad3d: return replication_pad;
    case Op::upsample_nearest1d:
    case Op::upsample_nearest2d:
    case Op::upsample_nearest3d:
    case Op::_upsample_nearest_exact1d:
    case Op::_upsample_nearest_exact2d:
    case Op::_upsample_nearest_exact3d:
    case Op::upsample_linear1d:
    case Op::upsample_bilinear2d:
    case Op::upsample_trilinear3d:
    case Op::upsample_bicubic2d: return upsample;
    default: return sample_rule(op);
  }
}

bool takes_window(const graph::Graph& g, const graph::Node& node) {
  if (sample_rule(node.op)) return takes_sample(g, node);
  const TensorType &from = g.type(tensor(node, 0)), &to = g.type(node.outputs[0]);
  for (Expr s : from.sizes)
    if (g.arena().is_const(s, 0)) return false;
  switch (node.op) {
    case Op::max_pool2d_with_indices:
    case Op::max_pool3d_with_indices:
    case Op::adaptive_max_pool2d:
    case Op::adaptive_max_pool3d:
    case Op::avg_pool2d:
    case Op::avg_pool3d:
    case Op::_adaptive_avg_pool2d:
    case Op::_adaptive_avg_pool3d: {
      auto w = is_floating(from.dtype) ? window_of(g.arena(), node, from.sizes, to.sizes) : std::nullopt;
      if (!w) return false;
      int64_t taps = 1;
      for (const WindowDim& d : *w) taps *= d.kernel;
      return taps <= (w->size() == 3 ? kMaxTaps3d : kMaxTaps);
    }
    case Op::reflection_pad1d:
    case Op::reflection_pad2d:
    case Op::reflection_pad3d:
    case Op::replication_pad1d:
    case Op::replication_pad2d:
    case Op::replication_pad3d: return true;
    default: return is_floating(from.dtype) && resample_of(g.arena(), node, from.sizes, to.sizes).has_value();
  }
}

std::optional<std::vector<int64_t>> numbers(const sym::ExprArena& arena, const graph::Arg& arg, size_t dims) {
  auto* list = std::get_if<graph::IntList>(&arg);
  if (!list || (list->v.size() != dims && list->v.size() != 1)) return std::nullopt;
  std::vector<int64_t> out;
  for (size_t d = 0; d < dims; ++d) {
    auto c = arena.as_const(list->v[list->v.size() == 1 ? 0 : d]);
    if (!c) return std::nullopt;
    out.push_back(*c);
  }
  return out;
}

Expr WindowDim::start(sym::ExprArena& a, Expr out) const {
  if (to) return a.floordiv(a.mul(out, size), *to);
  return a.sub(a.mul(out, a.constant(stride)), a.constant(padding));
}
Expr WindowDim::end(sym::ExprArena& a, Expr out) const {
  Expr most = a.sub(*to, a.constant(1));
  return a.floordiv(a.add(a.mul(a.add(out, a.constant(1)), size), most), *to);
}
Expr WindowDim::at(sym::ExprArena& a, Expr out, Expr tap) const {
  return a.add(start(a, out), a.mul(tap, a.constant(dilation)));
}

Expr place_inside(Lowering& low, Body& body, Expr e, Expr size, std::optional<Val>& inside) {
  if (low.indexing.below(e, size)) return e;
  sym::ExprArena& a = low.arena;
  sym::Range r = a.range(e), to = a.range(size);
  DType t = r.lo >= INT32_MIN && r.hi <= INT32_MAX && to.hi <= INT32_MAX ? DType::I32 : DType::I64;
  Val i{&body, body.index(e, t)};
  Val here = (i >= 0.0) & (i < Val{&body, body.index(size, t)});
  inside = inside ? *inside & here : here;
  return a.max(a.min(e, a.sub(size, a.constant(1))), a.constant(0));
}

namespace {

// Windows that share the operand among them: of equal length where that is possible.
std::optional<std::vector<WindowDim>> adaptive_windows(const sym::ExprArena& a, size_t dims,
                                                       const std::vector<Expr>& from, const std::vector<Expr>& to) {
  std::vector<WindowDim> w;
  for (size_t k = from.size() - dims; k < from.size(); ++k) {
    auto in = a.as_const(from[k]), out = a.as_const(to[k]);
    if (!in || !out || *in <= 0 || *out <= 0) return std::nullopt;
    WindowDim d{*in / *out, *in / *out, 0, 1, from[k], {}, 0};
    if (*in % *out) {
      d.to = to[k];
      d.least = *in;
      for (int64_t i = 0; i < *out; ++i) {
        int64_t length = ((i + 1) * *in + *out - 1) / *out - i * *in / *out;
        d.kernel = std::max(d.kernel, length);
        d.least = std::min(d.least, length);
      }
    }
    w.push_back(d);
  }
  return w;
}

}  // namespace

std::optional<std::vector<WindowDim>> window_of(sym::ExprArena& arena, const graph::Node& node,
                                                const std::vector<Expr>& from, const std::vector<Expr>& to) {
  size_t dims = 2, first = 1;
  bool dilated = false, adaptive = false;
  switch (node.op) {
    case Op::max_pool2d_with_indices: dilated = true; break;
    case Op::max_pool3d_with_indices: dims = 3, dilated = true; break;
    case Op::avg_pool2d: break;
    case Op::avg_pool3d: dims = 3; break;
    case Op::avg_pool2d_backward: first = 2; break;
    case Op::avg_pool3d_backward: dims = 3, first = 2; break;
    case Op::adaptive_max_pool2d:
    case Op::_adaptive_avg_pool2d: adaptive = true; break;
    case Op::adaptive_max_pool3d:
    case Op::_adaptive_avg_pool3d: dims = 3, adaptive = true; break;
    default: return std::nullopt;
  }
  if (from.size() < dims + 1 || to.size() != from.size()) return std::nullopt;
  if (adaptive) return adaptive_windows(arena, dims, from, to);
  auto kernel = numbers(arena, node.args[first], dims), padding = numbers(arena, node.args[first + 2], dims);
  auto* given = std::get_if<graph::IntList>(&node.args[first + 1]);
  auto stride = given && given->v.empty() ? kernel : numbers(arena, node.args[first + 1], dims);
  auto dilation = dilated ? numbers(arena, node.args[first + 3], dims) : std::vector<int64_t>(dims, 1);
  if (!kernel || !padding || !stride || !dilation) return std::nullopt;
  std::vector<WindowDim> w;
  for (size_t k = 0; k < dims; ++k)
    w.push_back({(*kernel)[k], (*stride)[k], (*padding)[k], (*dilation)[k], from[from.size() - dims + k], {}, 0});
  return w;
}

Expr counted(sym::ExprArena& a, const WindowDim& w, Expr out, bool include_padding) {
  auto least = [&](Expr x, Expr y) {
    return a.known(a.le(x, y)) == true ? x : a.known(a.le(y, x)) == true ? y : a.min(x, y);
  };
  auto greatest = [&](Expr x, Expr y) {
    return a.known(a.le(x, y)) == true ? y : a.known(a.le(y, x)) == true ? x : a.max(x, y);
  };
  if (w.to) return a.sub(w.end(a, out), w.start(a, out));
  Expr start = w.start(a, out), end = least(a.add(start, a.constant(w.kernel)), a.add(w.size, a.constant(w.padding)));
  if (include_padding) return a.sub(end, start);
  return a.sub(least(end, w.size), greatest(start, a.constant(0)));
}

Expr padded_place(sym::ExprArena& a, Expr out, Expr before, Expr size, bool reflect) {
  Expr e = a.sub(out, before), last = a.sub(size, a.constant(1));
  if (!reflect) return a.max(a.min(e, last), a.constant(0));
  auto magnitude = [&](Expr x) { return a.max(x, a.neg(x)); };
  return a.sub(last, magnitude(a.sub(last, magnitude(e))));
}

std::array<Val, 4> cubic_weights(Val t) {
  constexpr double a = -0.75;
  auto inner = [&](Val x) { return ((x * (a + 2) - (a + 3)) * x) * x + 1.0; };
  auto outer = [&](Val x) { return ((x * a - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {outer(t + 1.0), inner(t), inner(1.0 - t), outer(2.0 - t)};
}

namespace {

// The four places around `real`, moved inside.
std::vector<Tap> cubic_taps(Body& b, Expr size, int64_t count, Val real) {
  Val low = min(floor(real), static_cast<double>(count - 1)), t = max(min(real - low, 1.0), 0.0);
  Val first = low.to(DType::I32);
  const std::array<Val, 4> weights = cubic_weights(t);
  std::vector<Tap> out;
  for (int k = 0; k < 4; ++k) {
    Val place = max(min(first + static_cast<double>(k - 1), static_cast<double>(count - 1)), 0.0);
    out.push_back({b.indirect(place.id, size, {loop::Fault::Index, true, 0}), weights[k]});
  }
  return out;
}

}  // namespace

// As eager: in float, or double for double tensors.
std::vector<Tap> taps(Lowering& low, Body& b, const Resample& r, Expr out, DType t) {
  sym::ExprArena& a = low.arena;
  using Kind = Resample::Kind;
  const bool cubic = r.kind == Kind::Cubic || r.kind == Kind::CubicCorners;
  if (r.size == r.to && !cubic) return {{out, std::nullopt}};
  int64_t from = a.as_const(r.size).value(), to = a.as_const(r.to).value();
  auto rounded = [&](double x) { return t == DType::F64 ? x : static_cast<double>(static_cast<float>(x)); };
  const bool corners = r.kind == Kind::LinearCorners || r.kind == Kind::CubicCorners;
  double scale;
  if (corners)
    scale = to > 1 ? rounded(rounded(static_cast<double>(from - 1)) / static_cast<double>(to - 1)) : 0;
  else if (r.scale && *r.scale > 0)
    scale = rounded(1.0 / *r.scale);
  else
    scale = rounded(static_cast<double>(from) / static_cast<double>(to));
  Val i{&b, b.index(out, t)};
  if (r.kind == Kind::Nearest || r.kind == Kind::NearestExact) {
    double shift = r.kind == Kind::NearestExact ? 0.5 : 0.0;
    auto place = [&](int64_t k) {
      return std::min(static_cast<int64_t>(std::floor(rounded(rounded(static_cast<double>(k) + shift) * scale))),
                      from - 1);
    };
    // A whole factor is a division: then neighbours are known to read the same place.
    bool whole = to % from == 0;
    for (int64_t k = 0; whole && k < to; ++k) whole = place(k) == k / (to / from);
    if (whole) return {{a.floordiv(out, a.constant(to / from)), std::nullopt}};
    Val at = floor((shift != 0 ? i + shift : i) * scale).to(DType::I32);
    return {
        {b.indirect(min(at, static_cast<double>(from - 1)).id, r.size, {loop::Fault::Index, true, 0}), std::nullopt}};
  }
  Val real = corners ? i * scale : (i + 0.5) * scale - 0.5;
  if (cubic) return cubic_taps(b, r.size, from, real);
  if (!corners) real = max(real, 0.0);
  Val first = min(floor(real).to(DType::I32), static_cast<double>(from - 1));
  Val lambda = min(max(real - first.to(t), 0.0), 1.0);
  Val second = min(first + 1.0, static_cast<double>(from - 1));
  loop::IndexCheck never{loop::Fault::Index, true, 0};
  return {{b.indirect(first.id, r.size, never), 1.0 - lambda}, {b.indirect(second.id, r.size, never), lambda}};
}

std::optional<std::vector<Resample>> resample_of(const sym::ExprArena& arena, const graph::Node& node,
                                                 const std::vector<Expr>& from, const std::vector<Expr>& to) {
  using Kind = Resample::Kind;
  Kind kind;
  size_t dims, scales;  // scales: the first of their arguments
  auto corners = [&](size_t i) { return std::get<bool>(node.args[i]) ? Kind::LinearCorners : Kind::Linear; };
  auto cubic = [&](size_t i) { return std::get<bool>(node.args[i]) ? Kind::CubicCorners : Kind::Cubic; };
  switch (node.op) {
    case Op::upsample_nearest1d: kind = Kind::Nearest, dims = 1, scales = 2; break;
    case Op::upsample_nearest2d: kind = Kind::Nearest, dims = 2, scales = 2; break;
    case Op::upsample_nearest3d: kind = Kind::Nearest, dims = 3, scales = 2; break;
    case Op::_upsample_nearest_exact1d: kind = Kind::NearestExact, dims = 1, scales = 2; break;
    case Op::_upsample_nearest_exact2d: kind = Kind::NearestExact, dims = 2, scales = 2; break;
    case Op::_upsample_nearest_exact3d: kind = Kind::NearestExact, dims = 3, scales = 2; break;
    case Op::upsample_linear1d: kind = corners(2), dims = 1, scales = 3; break;
    case Op::upsample_bilinear2d: kind = corners(2), dims = 2, scales = 3; break;
    case Op::upsample_trilinear3d: kind = corners(2), dims = 3, scales = 3; break;
    case Op::upsample_bicubic2d: kind = cubic(2), dims = 2, scales = 3; break;
    case Op::upsample_nearest1d_backward: kind = Kind::Nearest, dims = 1, scales = 3; break;
    case Op::upsample_nearest2d_backward: kind = Kind::Nearest, dims = 2, scales = 3; break;
    case Op::upsample_nearest3d_backward: kind = Kind::Nearest, dims = 3, scales = 3; break;
    case Op::_upsample_nearest_exact1d_backward: kind = Kind::NearestExact, dims = 1, scales = 3; break;
    case Op::_upsample_nearest_exact2d_backward: kind = Kind::NearestExact, dims = 2, scales = 3; break;
    case Op::_upsample_nearest_exact3d_backward: kind = Kind::NearestExact, dims = 3, scales = 3; break;
    case Op::upsample_bilinear2d_backward: kind = corners(3), dims = 2, scales = 4; break;
    case Op::upsample_bicubic2d_backward: kind = cubic(3), dims = 2, scales = 4; break;
    default: return std::nullopt;
  }
  if (from.size() != dims + 2 || to.size() != dims + 2) return std::nullopt;
  std::vector<Resample> out;
  for (size_t k = 0; k < dims; ++k) {
    Resample r{kind, from[2 + k], to[2 + k], std::nullopt};
    if (!arena.as_const(r.size) || !arena.as_const(r.to)) return std::nullopt;
    if (scales + k < node.args.size())
      if (auto* s = std::get_if<double>(&node.args[scales + k])) r.scale = *s;
    // Where the sizes are equal or one is twice the other, which of PyTorch's kernels runs decides whether the nearest
    // place goes by them or by a scale that says something else.
    const bool nearest = r.kind == Kind::Nearest || r.kind == Kind::NearestExact;
    const int64_t size = *arena.as_const(r.size), more = *arena.as_const(r.to);
    if (nearest && r.scale && *r.scale > 0)
      for (int64_t factor : {1, 2})
        if (more == factor * size && *r.scale != static_cast<double>(factor)) return std::nullopt;
    out.push_back(r);
  }
  return out;
}

}  // namespace braze::lower
