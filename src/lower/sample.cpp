// Sampling at places that a tensor gives: (input [N, C, (D,) H, W], grid [N, (D',) H', W', 2 or 3], interpolation,
// padding, align_corners). The grid's last dimension holds x, y(, z): the operand's last dimension first.
//
// By the steps of PyTorch's kernels that make one element at a time: where a place is rounded to the nearest one,
// another order of the same formula would choose another element. Their kernels compute a place once for all channels:
// planes on a CPU, whose vectors take other steps, and few channels on a GPU are calls.
#include <array>

#include "lower/scatter.h"
#include "lower/window.h"

namespace braze::lower {

using graph::Op;
using graph::ValueId;

namespace {

// On a GPU, where threads that share a place read it from the cache: an H200 is even with PyTorch's kernel at 16
// channels and twice as fast at 256.
constexpr int64_t kManyChannels = 32;

enum class How : uint8_t { Linear = 0, Nearest = 1, Cubic = 2 };
enum class Outside : uint8_t { Zeros = 0, Border = 1, Reflection = 2 };

// One dimension of the operand.
struct Side {
  Expr size;
  double count;  // the same
  bool corners, gpu;
  Outside outside;

  // Of -1 to 1: 0 to count - 1, from the middle of an element, or from its edge.
  Val scaled(Val x) const {
    if (corners) return ((x + 1.0) / 2.0) * (count - 1);
    // As the compiler of PyTorch's kernels for GPUs contracts it.
    if (gpu) return fma(x + 1.0, x.same(count), x.same(-1.0)) / 2.0;
    return ((x + 1.0) * count - 1.0) / 2.0;
  }
  // Into the operand: what is no number becomes the last place, or on a GPU the first one.
  Val clipped(Val x) const {
    if (gpu) return min(where(x > 0.0, x, 0.0), count - 1);
    Val least = where(x < 0.0, 0.0, x);
    return where(least < count - 1, least, x.same(count - 1));
  }
  Val reflected(Val x) const {
    const double low = corners ? 0.0 : -0.5, span = corners ? count - 1 : count;
    if (span <= 0) return x.same(0.0);
    Val far = abs(x - low);
    Val extra = fmod(far, far.same(span)), flips = floor(far / span);
    // As an integer, which on a GPU is the greatest one where there are more.
    Val even = fmod(flips, flips.same(2)) == 0.0;
    if (gpu) even = even & (flips < 0x1p31);
    return where(even, extra + low, span - extra + low);
  }
  Val moved(Val x) const {
    switch (outside) {
      case Outside::Zeros: return x;
      case Outside::Border: return clipped(x);
      case Outside::Reflection: return clipped(reflected(x));
    }
    return x;
  }
};

// One element along one dimension.
struct SampleTap {
  Expr place;
  Val inside;
  std::optional<Val> weight;  // absent: 1
};

SampleTap tap_at(Body& b, const Side& side, Val whole, std::optional<Val> weight) {
  Val inside = (whole >= 0.0) & (whole <= side.count - 1);
  Val place = where(inside, whole, 0.0).to(side.count <= INT32_MAX ? DType::I32 : DType::I64);
  return {b.indirect(place.id, side.size, {loop::Fault::Index, true, 0}), inside, weight};
}

std::vector<SampleTap> sample_taps(Body& b, const Side& side, How how, Val x) {
  if (how == How::Nearest) return {tap_at(b, side, round(side.moved(side.scaled(x))), std::nullopt)};
  if (how == How::Linear) {
    Val real = side.moved(side.scaled(x)), first = floor(real), second = first + 1.0;
    return {tap_at(b, side, first, second - real), tap_at(b, side, second, real - first)};
  }
  Val real = side.scaled(x), first = floor(real);
  auto weights = cubic_weights(real - first);
  std::vector<SampleTap> out;
  for (int k = 0; k < 4; ++k)
    out.push_back(tap_at(b, side, side.moved(first + static_cast<double>(k - 1)), weights[k]));
  return out;
}

bool flag(const graph::Node& node, size_t i) { return std::get<bool>(node.args.at(i)); }

std::optional<int64_t> chosen(const graph::Graph& g, const graph::Node& node, size_t i, int64_t most) {
  auto* e = std::get_if<Expr>(&node.args.at(i));
  auto c = e ? g.arena().as_const(*e) : std::nullopt;
  return c && *c >= 0 && *c <= most ? c : std::nullopt;
}

// The sum over the taps of dimension k and those after it. A tap outside adds nothing; in cubic convolution it adds its
// weights times 0, which may be no number.
Val sampled(const Point& p, ValueId from, std::vector<Expr>& at, const std::vector<std::vector<SampleTap>>& by,
            size_t k, std::optional<Val> inside, std::optional<Val> weight, bool cubic) {
  if (k == by.size()) {
    Val x = p.at(from, at);
    if (cubic || !weight) return where(*inside, x, 0.0);
    return where(*inside, x * *weight, 0.0);
  }
  std::optional<Val> sum;
  for (const SampleTap& t : by[k]) {
    at[at.size() - by.size() + k] = t.place;
    auto w = weight && t.weight ? std::optional(*weight * *t.weight) : t.weight;
    Val x = sampled(p, from, at, by, k + 1, inside ? *inside & t.inside : t.inside, w, cubic);
    if (cubic) x = x * *t.weight;
    sum = sum ? *sum + x : x;
  }
  return *sum;
}

Val grid_sample(const Point& p) {
  ValueId from = tensor(p.node, 0), grid = tensor(p.node, 1);
  const auto& own = sizes(p.low, from);
  const size_t dims = own.size() - 2;
  const auto how = static_cast<How>(*chosen(p.low.source, p.node, 2, 2));
  const auto outside = static_cast<Outside>(*chosen(p.low.source, p.node, 3, 2));
  std::vector<Expr> in_grid{p.index[0]};
  in_grid.insert(in_grid.end(), p.index.begin() + 2, p.index.end());
  in_grid.push_back({});
  std::vector<std::vector<SampleTap>> by;
  for (size_t k = 0; k < dims; ++k) {
    const Expr size = own[2 + k];
    const auto count = static_cast<double>(p.low.arena.as_const(size).value());
    in_grid.back() = p.low.arena.constant(static_cast<int64_t>(dims - 1 - k));
    Val x = p.at(grid, in_grid);
    by.push_back(
        sample_taps(p.body, {size, count, flag(p.node, 4), p.type().device.type != DeviceType::CPU, outside}, how, x));
  }
  std::vector<Expr> at(p.index.begin(), p.index.end());
  return sampled(p, from, at, by, 0, std::nullopt, std::nullopt, how == How::Cubic);
}

}  // namespace

ElementRule sample_rule(Op op) {
  switch (op) {
    case Op::grid_sampler_2d:
    case Op::grid_sampler_3d: return grid_sample;
    default: return nullptr;
  }
}

bool takes_sample(const graph::Graph& g, const graph::Node& node) {
  const TensorType &from = g.type(tensor(node, 0)), &grid = g.type(tensor(node, 1));
  if ((from.dtype != DType::F32 && from.dtype != DType::F64) || grid.dtype != from.dtype) return false;
  const bool cpu = from.device.type == DeviceType::CPU;
  if (cpu ? node.op == Op::grid_sampler_2d : g.arena().as_const(from.sizes[1]).value_or(0) < kManyChannels)
    return false;
  const auto how = chosen(g, node, 2, node.op == Op::grid_sampler_2d ? 2 : 1);
  if (!how || !chosen(g, node, 3, 2) || !std::holds_alternative<bool>(node.args.at(4))) return false;
  for (size_t d = 2; d < from.sizes.size(); ++d)
    if (g.arena().as_const(from.sizes[d]).value_or(0) <= 0) return false;
  return from.sizes.size() == (node.op == Op::grid_sampler_2d ? 4U : 5U);
}

}  // namespace braze::lower
