// Numbers of few bits for floats and back. Steps are computed in float, as their definition does.
#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

double single(double v) { return static_cast<float>(v); }

// The parameter of the element at an index: one for all, one for each index of dimension `axis`, or broadcast.
double parameter(const HostCall& c, size_t i, const Dims& index, size_t axis) {
  if (c.none(i)) return 0;
  HostTensor t = c.operand(i);
  if (t.data.size() == 1) return t.data[0];
  return axis < index.size() && t.sizes.size() == 1 ? t.data.at(static_cast<size_t>(index[axis])) : at(t, index);
}

size_t axis_of(const HostCall& c, bool per_channel) {
  return per_channel ? c.dim(3, c.tensor(0).sizes.size()) : std::numeric_limits<size_t>::max();
}

// (input, scale, zero point, [axis,] least, most, dtype)
template <bool per_channel>
void quantize(HostCall& c) {
  size_t axis = axis_of(c, per_channel), first = per_channel ? 4 : 3;
  c.each([&](const Dims& i) {
    double steps = single(at(c.tensor(0), i) * single(1 / parameter(c, 1, i, axis)));
    return std::clamp(std::nearbyint(steps) + parameter(c, 2, i, axis), c.number(first), c.number(first + 1));
  });
}

// The zero point is added before it is rounded.
void quantize_per_token(HostCall& c) {
  c.each([&](const Dims& i) {
    double steps = single(at(c.tensor(0), i) * single(1 / parameter(c, 1, i, 99)));
    return std::clamp(std::nearbyint(single(steps + parameter(c, 2, i, 99))), c.number(3), c.number(4));
  });
}

template <bool per_channel>
void dequantize(HostCall& c) {
  size_t axis = axis_of(c, per_channel);
  c.each([&](const Dims& i) { return (at(c.tensor(0), i) - parameter(c, 2, i, axis)) * parameter(c, 1, i, axis); });
}

// (input, scales, zero points or none, least, most, dtype, elements of a group, ...): a scale for each group of a row.
void dequantize_groups(HostCall& c) {
  c.each([&](const Dims& i) {
    Dims group{i[0], i[1] / c.integer(6)};
    return (at(c.tensor(0), i) - (c.none(2) ? 0 : at(c.tensor(2), group))) * at(c.tensor(1), group);
  });
}

Numbers row_of(const HostTensor& x, Dims i) {
  Numbers row;
  for (i.back() = 0; i.back() < x.sizes.back(); ++i.back()) row.push_back(at(x, i));
  return row;
}

// Scale and zero point for which a row's range, with 0 in it, becomes -128 to 127.
std::pair<double, double> range_of(const Numbers& row) {
  double least = std::min(extreme(row, false), 0.0), most = std::max(extreme(row, true), 0.0);
  double scale = single(std::max(single(single(most - least) / 255), 0x1p-23));
  double below = single(least / scale), above = single(most / scale);
  double zero = below - 128 + above + 127 > 0 ? -128 - below : 127 - above;
  return {scale, std::nearbyint(std::clamp(zero, -128.0, 127.0))};
}
void choose_per_token_asymmetric(HostCall& c) {
  c.each(0, [&](const Dims& i) { return range_of(row_of(c.tensor(0), i)).first; });
  c.each(1, [&](const Dims& i) { return range_of(row_of(c.tensor(0), i)).second; });
}

// (input, scale, zero point, least, most), or with an argument before the last two: 0 where nothing is to be done.
void fake_quantize(HostCall& c) {
  size_t first = c.op() == Op::fake_quantize_per_tensor_affine_cachemask ? 3 : 4;
  double scale = single(c.operand(1).data.at(0)), zero = c.operand(2).data.at(0);
  bool done = first == 3 || c.tensor(3).data.at(0) != 0;
  double least = c.number(first), most = c.number(first + 1);
  auto steps = [&](const Dims& i) { return std::nearbyint(single(at(c.tensor(0), i) * single(1 / scale))) + zero; };
  c.each(0,
         [&](const Dims& i) { return done ? (std::clamp(steps(i), least, most) - zero) * scale : at(c.tensor(0), i); });
  c.each(1, [&](const Dims& i) { return !done || (steps(i) >= least && steps(i) <= most); });
}

// The parameters of an element of x, of which scales and zero points are learnt.
struct Learnt {
  double scale, zero, steps;
  size_t which;
};

template <bool per_channel>
Learnt learnt(const HostCall& c, size_t x_at, const Dims& i) {
  size_t first = x_at + (per_channel ? 4 : 3);
  Learnt l;
  l.which = per_channel ? static_cast<size_t>(i[static_cast<size_t>(c.integer(x_at + 3))]) : 0;
  l.scale = c.tensor(x_at + 1).data[l.which];
  double zero = c.tensor(x_at + 2).data[l.which];
  zero = x_at && !per_channel ? std::trunc(single(zero + 0.5)) : std::nearbyint(zero);
  l.zero = std::clamp(zero, c.number(first), c.number(first + 1));
  l.steps = std::nearbyint(single(at(c.tensor(x_at), i) * single(1 / l.scale))) + l.zero;
  return l;
}

// (input, scale, zero point, [axis,] least, most, factor)
template <bool per_channel>
void learnable(HostCall& c) {
  size_t first = per_channel ? 4 : 3;
  c.each([&](const Dims& i) {
    Learnt l = learnt<per_channel>(c, 0, i);
    return (std::clamp(l.steps, c.number(first), c.number(first + 1)) - l.zero) * l.scale;
  });
}

// With the gradient before these.
template <bool per_channel>
void learnable_backward(HostCall& c) {
  const HostTensor &grad = c.tensor(0), &x = c.tensor(1);
  size_t first = per_channel ? 5 : 4;
  double least = c.number(first), most = c.number(first + 1), factor = c.number(first + 2);
  Numbers dx, ds(c.tensor(2).data.size()), dz(c.tensor(2).data.size());
  for_each_index(x.sizes, [&](const Dims& i) {
    Learnt l = learnt<per_channel>(c, 1, i);
    double g = at(grad, i), limit = std::clamp(l.steps, least, most);
    bool inside = limit == l.steps;
    dx.push_back(inside ? g : 0 * g);
    ds[l.which] += g * factor * (limit - l.zero - (inside ? at(x, i) / l.scale : 0));
    dz[l.which] -= inside ? 0 : g * factor * l.scale;
  });
  c.give(0, std::move(dx));
  c.give(1, std::move(ds));
  c.give(2, std::move(dz));
}

}  // namespace

Rule quantize_rule(Op op) {
  switch (op) {
    case Op::fake_quantize_per_tensor_affine_cachemask:
    case Op::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams: return fake_quantize;
    case Op::_fake_quantize_learnable_per_tensor_affine: return learnable<false>;
    case Op::_fake_quantize_learnable_per_channel_affine: return learnable<true>;
    case Op::_fake_quantize_learnable_per_tensor_affine_backward: return learnable_backward<false>;
    case Op::_fake_quantize_learnable_per_channel_affine_backward: return learnable_backward<true>;
    default: return nullptr;
  }
}

Rule quantize_rule(std::string_view name) {
  constexpr std::string_view kPrefix = "quantized_decomposed::";
  if (!name.starts_with(kPrefix)) return nullptr;
  name.remove_prefix(kPrefix.size());
  name = name.substr(0, name.find('.'));  // a parameter may be a number or a tensor
  if (name == "quantize_per_tensor") return quantize<false>;
  if (name == "quantize_per_channel") return quantize<true>;
  if (name == "quantize_per_token") return quantize_per_token;
  if (name == "dequantize_per_tensor" || name == "dequantize_per_token") return dequantize<false>;
  if (name == "dequantize_per_channel") return dequantize<true>;
  if (name == "dequantize_per_channel_group") return dequantize_groups;
  if (name == "choose_qparams_per_token_asymmetric") return choose_per_token_asymmetric;
  return nullptr;
}

}  // namespace braze::graph::host
