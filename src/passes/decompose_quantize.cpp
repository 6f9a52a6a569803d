// Numbers of few bits for floats and back, of torch.ao.quantization (quantized_decomposed::*): its steps, one by one;
// and floats that are rounded as if they were such numbers (fake quantisation).
#include <limits>
#include <optional>
#include <utility>

#include "passes/builder.h"

namespace braze::passes {
namespace {

// Of the whole numbers that are quantised to; NoRule for others.
std::pair<int64_t, int64_t> limits(DType t) {
  switch (t) {
    case DType::U8: return {0, 255};
    case DType::I8: return {-128, 127};
    case DType::I16: return {-32768, 32767};
    case DType::I32: return {INT32_MIN, INT32_MAX};
    default: throw NoRule{};
  }
}

DType dtype_at(const Builder& b, size_t i, std::optional<DType> otherwise = {}) {
  auto* d = i < b.args.size() ? std::get_if<DType>(&b.args[i]) : nullptr;
  if (!d && !otherwise) throw NoRule{};
  return d ? *d : *otherwise;
}

// Calls raise where the numbers are no numbers of the dtype.
void check_limits(const Builder& b, size_t first, DType t) {
  auto [low, high] = limits(t);
  if (b.integer(first) < low || b.integer(first + 1) > high) throw NoRule{};
}

ValueId clamped(Builder& b, ValueId v, size_t first) {
  return b.call(Op::clamp, {v, b.args[first], b.args[first + 1]});
}

// A parameter of one element, as a number or as a tensor without dimensions.
Arg scalar(Builder& b, size_t i) {
  auto* v = std::get_if<ValueId>(&b.args.at(i));
  if (!v) return b.number(i);
  if (!b.arena().is_const(b.arena().product(b.type(*v).sizes), 1)) throw NoRule{};
  return b.view(*v, {});
}

// Of each channel, along dimension `axis` of x.
ValueId along(Builder& b, ValueId v, ValueId x, size_t axis) {
  if (b.rank(v) != 1) throw NoRule{};
  std::vector<Expr> sizes(b.rank(x), b.k(1));
  sizes[axis] = b.type(v).sizes[0];
  return b.view(v, std::move(sizes));
}

ValueId float_of(Builder& b, ValueId x) {
  DType t = b.type(x).dtype;
  if (t != DType::F32 && t != DType::BF16 && t != DType::F16) throw NoRule{};
  return b.cast(x, DType::F32);
}

// (input, scale, zero point, least, most, dtype)
void quantize_per_tensor(Builder& b) {
  ValueId x = float_of(b, b.tensor(0));
  DType t = dtype_at(b, 5);
  check_limits(b, 3, t);
  Arg scale = scalar(b, 1), zero = scalar(b, 2);
  if (auto* s = std::get_if<ValueId>(&scale))  // a division in double, as a call's
    scale = b.cast(b.unary(Op::reciprocal, b.cast(*s, DType::F64)), DType::F32);
  else
    scale = 1.0 / std::get<double>(scale);
  if (auto* z = std::get_if<ValueId>(&zero)) zero = b.cast(*z, DType::F32);
  b.set(0, b.cast(clamped(b, b.add(b.unary(Op::round, b.mul(x, scale)), zero), 3), t));
}

// (input, scale, zero point, least, most, dtype, dtype of the result)
void dequantize_per_tensor(Builder& b) {
  ValueId x = b.tensor(0);
  DType out = dtype_at(b, 6, DType::F32);
  limits(b.type(x).dtype);
  if (b.type(x).dtype != dtype_at(b, 5) || out != DType::F32) throw NoRule{};
  Arg scale = scalar(b, 1), zero = scalar(b, 2);
  for (Arg* a : {&scale, &zero})
    if (auto* v = std::get_if<ValueId>(a)) *a = b.cast(*v, out);
  b.set(0, b.mul(b.sub(b.cast(x, out), zero), scale));
}

// (input, scales, zero points, axis, least, most, dtype)
void quantize_per_channel(Builder& b) {
  ValueId x = float_of(b, b.tensor(0));
  DType t = dtype_at(b, 6);
  check_limits(b, 4, t);
  size_t axis = b.dim(3, b.rank(x));
  ValueId inverse = b.unary(Op::reciprocal, along(b, b.tensor(1), x, axis));
  ValueId whole = b.unary(Op::round, b.mul(x, inverse));
  b.set(0, b.cast(clamped(b, b.add(whole, along(b, b.tensor(2), x, axis)), 4), t));
}

// (input, scales, zero points or none, axis, least, most, dtype, dtype of the result)
void dequantize_per_channel(Builder& b) {
  ValueId x = b.tensor(0), zero = b.optional_tensor(2);
  check_limits(b, 4, dtype_at(b, 6));
  if (b.type(x).dtype != dtype_at(b, 6)) throw NoRule{};
  size_t axis = b.dim(3, b.rank(x));
  ValueId apart = zero.valid() ? b.sub(x, along(b, zero, x, axis)) : x;
  b.set(0, b.cast(b.mul(apart, along(b, b.tensor(1), x, axis)), dtype_at(b, 7, DType::F32)));
}

// (input, scales, zero points, least, most, dtype): a scale for each row.
void quantize_per_token(Builder& b) {
  DType t = dtype_at(b, 5);
  check_limits(b, 3, t);
  ValueId scaled = b.mul(b.tensor(0), b.unary(Op::reciprocal, b.tensor(1)));
  b.set(0, b.cast(clamped(b, b.unary(Op::round, b.add(scaled, b.tensor(2))), 3), t));
}

// (input, scales, zero points, least, most, dtype, dtype of the result)
void dequantize_per_token(Builder& b) {
  b.set(0, b.cast(b.mul(b.sub(b.tensor(0), b.tensor(2)), b.tensor(1)), dtype_at(b, 6)));
}

// (input, scales, zero points or none, least, most, dtype, elements of a group, dtype of the result)
void dequantize_per_channel_group(Builder& b) {
  ValueId x = b.tensor(0), zero = b.optional_tensor(2);
  auto columns = b.rank(x) == 2 ? b.arena().as_const(b.type(x).sizes[1]) : std::nullopt;
  int64_t group = b.integer(6);
  if (!columns || group <= 1 || *columns == 0 || *columns % group) throw NoRule{};
  Expr rows = b.type(x).sizes[0];
  auto grouped = [&](ValueId v, int64_t last) { return b.view(v, {rows, b.k(*columns / group), b.k(last)}); };
  ValueId r = grouped(x, group);
  if (zero.valid()) r = b.sub(r, grouped(zero, 1));
  b.set(0, b.cast(b.view(b.mul(r, grouped(b.tensor(1), 1)), b.type(x).sizes), dtype_at(b, 7)));
}

const std::vector<int64_t> kRows{-1};

// (input, dtype): scales and zero points for which a row's least and largest number become -128 and 127.
void choose_per_token_asymmetric(Builder& b) {
  ValueId x = b.tensor(0);
  if (b.type(x).dtype != DType::F32 || b.rank(x) == 0) throw NoRule{};
  ValueId least = b.call(Op::clamp_max, {b.call(Op::amin, {x, b.list(kRows), true}), 0.0});
  ValueId most = b.call(Op::clamp_min, {b.amax(x, kRows, true), 0.0});
  ValueId scale = b.call(Op::clamp_min, {b.div(b.sub(most, least), 255.0), 0x1p-23});
  ValueId below = b.div(least, scale), above = b.div(most, scale);
  ValueId error = b.add(b.add(below, b.k(-128)), b.add(above, b.k(127)));
  ValueId zero = b.where(b.call(Op::gt_Scalar, {error, b.k(0)}), b.call(Op::rsub_Scalar, {below, b.k(-128), b.k(1)}),
                         b.call(Op::rsub_Scalar, {above, b.k(127), b.k(1)}));
  zero = b.unary(Op::round, b.call(Op::clamp, {zero, b.k(-128), b.k(127)}));
  b.set(0, b.cast(scale, DType::F64));
  b.set(1, b.cast(zero, DType::I64));
}

// x in steps from `zero`, as the nearest of them in range, NaN as the least; and whether it was in range.
void fake_quantize(Builder& b, Arg scale, Arg inverse, Arg zero, size_t first, ValueId enabled) {
  ValueId x = b.tensor(0);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  ValueId steps = b.add(b.unary(Op::round, b.mul(x, std::move(inverse))), zero);
  steps = b.where(b.unary(Op::isnan, steps), -kInfinity, steps);
  ValueId inside = b.call(Op::logical_and, {b.call(Op::ge_Scalar, {steps, b.args[first]}),
                                            b.call(Op::le_Scalar, {steps, b.args[first + 1]})});
  ValueId r = b.mul(b.sub(clamped(b, steps, first), zero), scale);
  if (enabled.valid()) {
    ValueId off = b.call(Op::eq_Scalar, {enabled, b.k(0)});
    r = b.where(off, x, r);
    inside = b.call(Op::logical_or, {off, inside});
  }
  b.set(0, r);
  if (b.node.outputs.size() > 1 && b.wants(1)) b.set(1, inside);
}

// (input, scale, zero point, least, most)
void fake_quantize_by_numbers(Builder& b) {
  auto scale = static_cast<float>(b.number(1));
  fake_quantize(b, static_cast<double>(scale), static_cast<double>(1 / scale), b.number(2), 3, {});
}

// (input, scale, zero point, whether it is done at all, least, most)
void fake_quantize_by_tensors(Builder& b) {
  auto one = [&](size_t i) { return std::get<ValueId>(scalar(b, i)); };
  ValueId scale = one(1);
  fake_quantize(b, scale, b.unary(Op::reciprocal, scale), b.cast(one(2), DType::F32), 4, one(3));
}

// Of learnable scales and zero points, a dimension of x for each or all of x: as they broadcast.
struct Learnable {
  ValueId scale, zero;
  std::vector<int64_t> summed;  // the dimensions of x that share one
};

Learnable learnable(Builder& b, ValueId x, ValueId scale, ValueId zero, std::optional<size_t> axis, size_t first,
                    bool round) {
  Learnable l;
  for (size_t d = 0; d < b.rank(x); ++d)
    if (d != axis) l.summed.push_back(static_cast<int64_t>(d));
  auto spread = [&](ValueId v) { return axis ? along(b, v, x, *axis) : b.view(v, {}); };
  l.scale = spread(scale);
  zero = spread(zero);
  zero = b.unary(round ? Op::round : Op::trunc, round ? zero : b.add(zero, 0.5));
  l.zero = clamped(b, zero, first);
  return l;
}

// (input, scale, zero point, [axis,] least, most, factor)
void learnable_forward(Builder& b, std::optional<size_t> axis, size_t first) {
  Learnable l = learnable(b, b.tensor(0), b.tensor(1), b.tensor(2), axis, first, true);
  fake_quantize(b, l.scale, b.unary(Op::reciprocal, l.scale), l.zero, first, {});
}
void learnable_per_tensor(Builder& b) { learnable_forward(b, {}, 3); }
void learnable_per_channel(Builder& b) { learnable_forward(b, b.dim(3, b.rank(b.tensor(0))), 4); }

// (grad, input, scale, zero point, [axis,] least, most, factor): of the input, the scale and the zero point.
void learnable_backward(Builder& b, std::optional<size_t> axis, size_t first) {
  ValueId grad = b.tensor(0), x = b.tensor(1);
  Learnable l = learnable(b, x, b.tensor(2), b.tensor(3), axis, first, axis.has_value());
  double factor = b.number(first + 2);
  ValueId inverse = b.unary(Op::reciprocal, l.scale);
  ValueId steps = b.add(b.unary(Op::round, b.mul(x, inverse)), l.zero);
  ValueId below = b.call(Op::lt_Scalar, {steps, b.args[first]}),
          above = b.call(Op::gt_Scalar, {steps, b.args[first + 1]});
  ValueId inside = b.unary(Op::logical_not, b.call(Op::logical_or, {below, above}));
  ValueId rounded = b.mul(b.sub(clamped(b, steps, first), l.zero), l.scale);
  ValueId slope = b.mul(b.sub(rounded, x), inverse);
  for (auto [outside, limit] : {std::pair(below, first), std::pair(above, first + 1)})
    slope = b.where(outside, b.call(Op::rsub_Scalar, {l.zero, b.args[limit], b.k(1)}), slope);
  auto total = [&](ValueId v) {
    v = b.mul(v, factor);
    if (!l.summed.empty()) v = b.sum(v, l.summed, false);
    return axis ? v : b.view(v, {b.k(1)});
  };
  b.set(0, b.mul(grad, b.cast(inside, DType::F32)));
  b.set(1, total(b.mul(grad, slope)));
  b.set(2, total(b.where(inside, 0.0, b.mul(b.unary(Op::neg, grad), l.scale))));
}
void learnable_per_tensor_backward(Builder& b) { learnable_backward(b, {}, 4); }
void learnable_per_channel_backward(Builder& b) { learnable_backward(b, b.dim(4, b.rank(b.tensor(1))), 5); }

}  // namespace

DecomposeRule quantize_rule(Op op) {
  switch (op) {
    case Op::fake_quantize_per_tensor_affine_cachemask: return fake_quantize_by_numbers;
    case Op::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams: return fake_quantize_by_tensors;
    case Op::_fake_quantize_learnable_per_tensor_affine: return learnable_per_tensor;
    case Op::_fake_quantize_learnable_per_channel_affine: return learnable_per_channel;
    case Op::_fake_quantize_learnable_per_tensor_affine_backward: return learnable_per_tensor_backward;
    case Op::_fake_quantize_learnable_per_channel_affine_backward: return learnable_per_channel_backward;
    default: return nullptr;
  }
}

std::span<const NamedRule> quantize_rules() {
  static constexpr NamedRule kRules[] = {
      {"quantized_decomposed::quantize_per_tensor", quantize_per_tensor},
      {"quantized_decomposed::quantize_per_tensor.tensor", quantize_per_tensor},
      {"quantized_decomposed::dequantize_per_tensor", dequantize_per_tensor},
      {"quantized_decomposed::dequantize_per_tensor.tensor", dequantize_per_tensor},
      {"quantized_decomposed::quantize_per_channel", quantize_per_channel},
      {"quantized_decomposed::dequantize_per_channel", dequantize_per_channel},
      {"quantized_decomposed::quantize_per_token", quantize_per_token},
      {"quantized_decomposed::dequantize_per_token", dequantize_per_token},
      {"quantized_decomposed::dequantize_per_channel_group", dequantize_per_channel_group},
      {"quantized_decomposed::choose_qparams_per_token_asymmetric", choose_per_token_asymmetric},
  };
  return kRules;
}

}  // namespace braze::passes
