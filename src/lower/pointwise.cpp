// Arithmetic, comparisons, one-operand functions, selection, copies. One element of each, as eager PyTorch computes it.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "graph/shape.h"
#include "lower/element_rules.h"

namespace braze::lower {

using graph::Op;

namespace {

Val ones(const Point& p) { return p.literal(1); }

// alpha * x, without the multiplication by 1.
Val scaled(const Point& p, Val x, size_t alpha) {
  if (p.none(alpha) || p.constant(alpha) == 1.0) return x;
  return x * p.in(alpha);
}

bool is_int(Val x) { return !x.floating(); }

// x + alpha * y or x - alpha * y, of floats rounded once.
Val sum(const Point& p, Val x, Val y, size_t alpha, bool minus) {
  if (is_int(x) || p.none(alpha) || p.constant(alpha) == 1.0) {
    y = scaled(p, y, alpha);
    return minus ? x - y : x + y;
  }
  Val a = p.converted(alpha);
  // An integer has no negative zero.
  if (minus) a = std::holds_alternative<double>(p.arg(alpha)) ? -a : 0.0 - a;
  return fma(y, a, x);
}

// Rounds to the dtype of the tensors as eager does before comparing: a value and what was stored of it are equal.
Val compare_rule(const Point& p, OpCode code) {
  graph::Promotion promotion(DType::F32);
  for (size_t i = 0; i < 2; ++i) {
    if (auto* v = std::get_if<graph::ValueId>(&p.arg(i)))
      promotion.tensor(p.low.source.type(*v));
    else
      promotion.scalar(p.arg(i));
  }
  DType common = promotion.result();
  auto side = [&](size_t i) {
    Val x = p.in(i, compute_dtype(common));
    auto* v = std::get_if<graph::ValueId>(&p.arg(i));
    DType own = v ? p.low.source.type(*v).dtype : common;
    if (common != compute_dtype(common)) own = common;  // of a tensor without dimensions beside others, say
    return own != compute_dtype(own) ? x.rounded(own) : x;
  };
  Val a = side(0), b = side(1);
  return compare(code, a, b);
}

Val floor_division(Val a, Val b) {
  if (is_int(a)) return binary(OpCode::FloorDiv, a, b);
  Val mod = fmod(a, b);
  Val div = (a - mod) / b;
  div = where((mod != 0.0) & ((b < 0.0) ^ (mod < 0.0)), div - 1.0, div);
  Val down = floor(div);
  down = where(div - down > 0.5, down + 1.0, down);
  Val result = where(div != 0.0, down, copysign(a.same(0.0), a / b));
  return where(b == 0.0, a / b, result);
}

Val remainder(Val a, Val b) {
  if (is_int(a)) return binary(OpCode::Remainder, a, b);
  Val mod = fmod(a, b);
  return where((mod != 0.0) & ((b < 0.0) ^ (mod < 0.0)), mod + b, mod);
}

Val division(const Point& p) {
  Val a = p.converted(0), b = p.factor(1);
  if (p.none(2)) return a / b;
  if (std::get<std::string>(p.arg(2)) == "floor") return floor_division(a, b);
  return is_int(a) ? a / b : trunc(a / b);
}

Val power(const Point& p) {
  Val x = p.converted(0);
  if (auto e = p.constant(1)) {
    if (is_int(x)) {
      Val out = ones(p);
      for (auto n = static_cast<uint64_t>(*e); n; n >>= 1, x = x * x)
        if (n & 1) out = out * x;
      return out;
    }
    if (*e == 0.0) return ones(p);
    if (*e == 1.0) return x;
    if (*e == 2.0) return x * x;
    if (*e == 3.0) return x * x * x;
    // Of infinity and zero, powers differ from square roots; eager takes the latter but for this dtype.
    bool roots = p.type().dtype != DType::F16;
    if (*e == 0.5 && roots) return sqrt(x);
    if (*e == -0.5 && roots) return rsqrt(x);
    if (*e == -1.0) return recip(x);
    if (*e == -2.0) return recip(x * x);
  }
  return pow(x, p.converted(1));
}

// A shift by the type's width or more, or by a negative amount, leaves no bits (copies of the sign on the right).
Val shift(const Point& p, bool left) {
  Val x = p.in(0), n = p.in(1);
  int bits = size_of(x.dtype()) * 8;
  Val inside = (n >= 0.0) & (n < static_cast<double>(bits));
  if (x.dtype() == DType::U8) inside = n < static_cast<double>(bits);
  Val safe = where(inside, n, n.same(bits - 1));
  if (left) return where(inside, binary(OpCode::Shl, x, safe), x.same(0));
  Val shifted = binary(OpCode::Shr, x, safe);
  return x.dtype() == DType::U8 ? where(inside, shifted, x.same(0)) : shifted;
}

Val sign_of(Val x) {
  if (x.boolean()) return x;
  return (x > 0.0).to(x.dtype()) - (x < 0.0).to(x.dtype());
}

// In the result's own precision: the user asked for this dtype.
Val cast_to_result(const Point& p, size_t arg) {
  Val x = p.own(arg);
  DType to = p.type().dtype;
  auto* v = std::get_if<graph::ValueId>(&p.arg(arg));
  if (v && p.low.source.type(*v).dtype == to) return x;
  return x.to(to).to(compute_dtype(to));
}

Val clamp_rule(const Point& p, size_t lo, size_t hi) {
  Val x = p.in(0);
  if (!p.none(lo)) x = max(x, p.converted(lo));
  if (!p.none(hi)) x = min(x, p.converted(hi));
  return x;
}

// fmax and fmin: a number over NaN, and of equal numbers (zeros of two signs) the first, in bfloat16 the second.
Val number_or_extreme(const Point& p, OpCode better, OpCode on_integers) {
  Val a = p.in(0), b = p.in(1);
  if (is_int(a)) return binary(on_integers, a, b);
  if (p.type().dtype == DType::BF16) std::swap(a, b);
  return where(compare(better, a, b) | isnan(b), a, b);
}

Val lerp_rule(const Point& p) {
  // From the nearer end, rounded once.
  Val a = p.in(0), b = p.in(1), w = p.in(2), far = w - 1.0;
  auto from = [&](Val end, Val weight) { return fma(weight, b - a, end); };
  if (auto c = p.constant(2)) return std::abs(*c) < 0.5 ? from(a, w) : from(b, far);
  Val near = abs(w) < 0.5;
  return from(where(near, a, b), where(near, w, far));
}

}  // namespace

RULE(add_Tensor) { return sum(p, p.converted(0), p.converted(1), 2, false); }
RULES_EQUAL(add_Scalar, add_Tensor)
RULE(sub_Tensor) { return sum(p, p.converted(0), p.converted(1), 2, true); }
RULES_EQUAL(sub_Scalar, sub_Tensor)
RULE(rsub_Tensor) { return sum(p, p.converted(1), p.converted(0), 2, true); }
RULES_EQUAL(rsub_Scalar, rsub_Tensor)
RULE(mul_Tensor) { return p.factor(0) * p.factor(1); }
RULES_EQUAL(mul_Scalar, mul_Tensor)
RULE(div_Tensor) { return p.converted(0) / p.factor(1); }
RULES_EQUAL(div_Scalar, div_Tensor)
RULE(div_Tensor_mode) { return division(p); }
RULES_EQUAL(div_Scalar_mode, div_Tensor_mode)
RULE(pow_Tensor_Tensor) { return power(p); }
RULES_EQUAL(pow_Tensor_Scalar, pow_Tensor_Tensor)
RULE(pow_Scalar) { return pow(p.converted(0), p.converted(1)); }
RULE(remainder_Tensor) { return remainder(p.converted(0), p.converted(1)); }
RULES_EQUAL(remainder_Scalar, remainder_Tensor)
RULES_EQUAL(remainder_Scalar_Tensor, remainder_Tensor)
RULE(fmod_Tensor) { return fmod(p.converted(0), p.converted(1)); }
RULES_EQUAL(fmod_Scalar, fmod_Tensor)
RULE(floor_divide) { return floor_division(p.converted(0), p.factor(1)); }
RULES_EQUAL(floor_divide_Scalar, floor_divide)
RULE(maximum) { return max(p.in(0), p.in(1)); }
RULES_EQUAL(max_other, maximum)
RULE(minimum) { return min(p.in(0), p.in(1)); }
RULES_EQUAL(min_other, minimum)
RULE(fmax) { return number_or_extreme(p, OpCode::Ge, OpCode::Max); }
RULE(fmin) { return number_or_extreme(p, OpCode::Le, OpCode::Min); }
RULE(atan2) { return binary(OpCode::Atan2, p.converted(0), p.converted(1)); }
RULE(copysign_Tensor) { return copysign(p.in(0), p.in(1)); }
RULES_EQUAL(copysign_Scalar, copysign_Tensor)
RULE(xlogy_Tensor) {
  Val x = p.converted(0), y = p.in(1);
  return where(isnan(y), y, where(x == 0.0, 0.0, x * log(y)));
}
RULES_EQUAL(xlogy_Scalar_Other, xlogy_Tensor)
RULES_EQUAL(xlogy_Scalar_Self, xlogy_Tensor)
RULE(logaddexp) {
  Val a = p.converted(0), b = p.converted(1);
  return where(isinf(a) & (a == b), a, max(a, b) + log1p(exp(-abs(a - b))));
}
RULE(logaddexp2) {
  Val a = p.converted(0), b = p.converted(1);
  return where(isinf(a) & (a == b), a, max(a, b) + log1p(exp2(-abs(a - b))) * std::numbers::log2e);
}
RULE(heaviside) {
  Val x = p.in(0);
  return where(x == 0.0, p.in(1), (x > 0.0).to(x.dtype()));
}

RULE(eq_Tensor) { return compare_rule(p, OpCode::Eq); }
RULES_EQUAL(eq_Scalar, eq_Tensor)
RULE(ne_Tensor) { return compare_rule(p, OpCode::Ne); }
RULES_EQUAL(ne_Scalar, ne_Tensor)
RULE(lt_Tensor) { return compare_rule(p, OpCode::Lt); }
RULES_EQUAL(lt_Scalar, lt_Tensor)
RULE(le_Tensor) { return compare_rule(p, OpCode::Le); }
RULES_EQUAL(le_Scalar, le_Tensor)
RULE(gt_Tensor) { return compare_rule(p, OpCode::Gt); }
RULES_EQUAL(gt_Scalar, gt_Tensor)
RULE(ge_Tensor) { return compare_rule(p, OpCode::Ge); }
RULES_EQUAL(ge_Scalar, ge_Tensor)

RULE(logical_and) { return p.boolean(0) & p.boolean(1); }
RULE(logical_or) { return p.boolean(0) | p.boolean(1); }
RULE(logical_xor) { return p.boolean(0) ^ p.boolean(1); }
RULE(logical_not) { return ~p.boolean(0); }
RULE(bitwise_and_Tensor) { return p.in(0) & p.in(1); }
RULES_EQUAL(bitwise_and_Scalar, bitwise_and_Tensor)
RULES_EQUAL(bitwise_and_Scalar_Tensor, bitwise_and_Tensor)
RULES_EQUAL(op_and_Tensor, bitwise_and_Tensor)
RULES_EQUAL(op_and_Scalar, bitwise_and_Tensor)
RULE(bitwise_or_Tensor) { return p.in(0) | p.in(1); }
RULES_EQUAL(bitwise_or_Scalar, bitwise_or_Tensor)
RULES_EQUAL(bitwise_or_Scalar_Tensor, bitwise_or_Tensor)
RULES_EQUAL(op_or_Tensor, bitwise_or_Tensor)
RULES_EQUAL(op_or_Scalar, bitwise_or_Tensor)
RULE(bitwise_xor_Tensor) { return p.in(0) ^ p.in(1); }
RULES_EQUAL(bitwise_xor_Scalar, bitwise_xor_Tensor)
RULES_EQUAL(bitwise_xor_Scalar_Tensor, bitwise_xor_Tensor)
RULES_EQUAL(op_xor_Tensor, bitwise_xor_Tensor)
RULES_EQUAL(op_xor_Scalar, bitwise_xor_Tensor)
RULE(bitwise_not) { return ~p.in(0); }
RULE(bitwise_left_shift_Tensor) { return shift(p, true); }
RULES_EQUAL(bitwise_left_shift_Tensor_Scalar, bitwise_left_shift_Tensor)
RULES_EQUAL(bitwise_left_shift_Scalar_Tensor, bitwise_left_shift_Tensor)
RULES_EQUAL(op_lshift_Tensor, bitwise_left_shift_Tensor)
RULES_EQUAL(op_lshift_Scalar, bitwise_left_shift_Tensor)
RULE(bitwise_right_shift_Tensor) { return shift(p, false); }
RULES_EQUAL(bitwise_right_shift_Tensor_Scalar, bitwise_right_shift_Tensor)
RULES_EQUAL(bitwise_right_shift_Scalar_Tensor, bitwise_right_shift_Tensor)
RULES_EQUAL(op_rshift_Tensor, bitwise_right_shift_Tensor)
RULES_EQUAL(op_rshift_Scalar, bitwise_right_shift_Tensor)

#define FLOAT_FUNCTION(name, code) \
  RULE(name) { return unary(OpCode::code, p.in(0)); }
#define ROUNDING(name, code) \
  RULE(name) { return is_int(p.in(0)) ? p.in(0) : unary(OpCode::code, p.in(0)); }
RULE(neg) { return -p.in(0); }
RULE(abs) {
  Val x = p.in(0);
  return x.boolean() || x.dtype() == DType::U8 ? x : abs(x);
}
RULE(angle) {
  Val x = p.in(0);
  return where(isnan(x), x, where(x < 0.0, std::numbers::pi, x.same(0.0)));
}
RULE(sign) { return sign_of(p.in(0)); }
RULES_EQUAL(sgn, sign)
ROUNDING(floor, Floor)
ROUNDING(ceil, Ceil)
ROUNDING(trunc, Trunc)
ROUNDING(round, Round)
RULE(frac) { return p.in(0) - trunc(p.in(0)); }
RULE(round_decimals) {
  Val x = p.in(0);
  double d = p.number(1), scale = std::pow(10.0, std::abs(d));
  if (is_int(x) || d == 0) return is_int(x) ? x : round(x);
  return d > 0 ? round(x * scale) / scale : round(x / scale) * scale;
}
FLOAT_FUNCTION(sqrt, Sqrt)
FLOAT_FUNCTION(rsqrt, Rsqrt)
FLOAT_FUNCTION(reciprocal, Recip)
RULE(square) { return p.in(0) * p.in(0); }
RULE(positive) { return p.in(0); }
FLOAT_FUNCTION(exp, Exp)
FLOAT_FUNCTION(exp2, Exp2)
FLOAT_FUNCTION(expm1, Expm1)
FLOAT_FUNCTION(log, Log)
FLOAT_FUNCTION(log2, Log2)
FLOAT_FUNCTION(log10, Log10)
FLOAT_FUNCTION(log1p, Log1p)
FLOAT_FUNCTION(sin, Sin)
FLOAT_FUNCTION(cos, Cos)
FLOAT_FUNCTION(tan, Tan)
FLOAT_FUNCTION(asin, Asin)
FLOAT_FUNCTION(acos, Acos)
FLOAT_FUNCTION(atan, Atan)
FLOAT_FUNCTION(sinh, Sinh)
FLOAT_FUNCTION(cosh, Cosh)
FLOAT_FUNCTION(tanh, Tanh)
FLOAT_FUNCTION(asinh, Asinh)
FLOAT_FUNCTION(acosh, Acosh)
FLOAT_FUNCTION(atanh, Atanh)
FLOAT_FUNCTION(erf, Erf)
FLOAT_FUNCTION(erfc, Erfc)
FLOAT_FUNCTION(sigmoid, Sigmoid)
RULE(isnan) {
  Val x = p.own(0);
  return is_int(x) ? p.literal(0) : isnan(x);
}
RULE(isinf) {
  Val x = p.own(0);
  return is_int(x) ? p.literal(0) : isinf(x);
}
RULE(isfinite) {
  Val x = p.own(0);
  return is_int(x) ? p.literal(1) : ~(isinf(x) | isnan(x));
}
RULE(isneginf) {
  Val x = p.own(0);
  return is_int(x) ? p.literal(0) : x == -std::numeric_limits<double>::infinity();
}
RULE(isposinf) {
  Val x = p.own(0);
  return is_int(x) ? p.literal(0) : x == std::numeric_limits<double>::infinity();
}
RULE(signbit) {
  Val x = p.own(0);
  return is_int(x) ? x < 0.0 : copysign(x.same(1.0), x) < 0.0;
}
RULE(nan_to_num) {
  Val x = p.in(0);
  if (is_int(x)) return x;
  const double top = largest_finite(p.type().dtype);
  constexpr double inf = std::numeric_limits<double>::infinity();
  Val finite = where(x == inf, p.none(2) ? top : p.number(2), where(x == -inf, p.none(3) ? -top : p.number(3), x));
  return where(isnan(x), p.none(1) ? 0.0 : p.number(1), finite);
}
RULE(logit) {
  Val x = p.in(0);
  if (!p.none(1)) {  // of bounds that cross the lower one decides for what is below it, as in eager
    Val low = x.same(p.number(1)), high = x.same(1.0 - p.number(1));
    x = where(x < low, low, where(x > high, high, x));
  }
  return log(x / (1.0 - x));
}
RULE(sinc) {
  Val x = p.in(0) * std::numbers::pi;
  return where(x == 0.0, 1.0, sin(x) / x);
}
RULE(special_entr) {
  Val x = p.in(0);
  return where(isnan(x), x, where(x > 0.0, -(x * log(x)), where(x == 0.0, 0.0, x.same(-HUGE_VAL))));
}
RULE(deg2rad) { return p.in(0) * (std::numbers::pi / 180); }
RULE(rad2deg) { return p.in(0) * (180 / std::numbers::pi); }

RULE(where_self) { return where(p.boolean(0), p.held(1), p.held(2)); }
RULES_EQUAL(where_ScalarOther, where_self)
RULES_EQUAL(where_ScalarSelf, where_self)
RULES_EQUAL(where_Scalar, where_self)
RULE(clamp) { return clamp_rule(p, 1, 2); }
RULES_EQUAL(clamp_Tensor, clamp)
RULE(clamp_min) { return max(p.in(0), p.converted(1)); }
RULES_EQUAL(clamp_min_Tensor, clamp_min)
RULE(clamp_max) { return min(p.in(0), p.converted(1)); }
RULES_EQUAL(clamp_max_Tensor, clamp_max)
RULE(masked_fill_Scalar) { return where(p.boolean(1), p.held(2), p.in(0)); }
RULES_EQUAL(masked_fill_Tensor, masked_fill_Scalar)
RULE(lerp_Scalar) { return lerp_rule(p); }
RULES_EQUAL(lerp_Tensor, lerp_Scalar)
RULE(addcmul) {
  Val a = p.in(0), x = scaled(p, p.in(1), 3), y = p.in(2);
  if (is_int(a)) return a + x * y;
  return fma(x, y, a);  // eager rounds once
}
RULE(addcdiv) { return p.in(0) + scaled(p, p.in(1), 3) / p.in(2); }
NO_RULE(polar)
NO_RULE(complex)

RULE(_to_copy) { return cast_to_result(p, 0); }
RULE(copy) { return cast_to_result(p, 1); }
RULE(clone) { return p.in(0); }
RULES_EQUAL(contiguous, clone)

ElementRule pointwise_rule(Op op) {
  switch (op) {
#define BRAZE_RULE_Pointwise(name) \
  case Op::name: return rule_##name;
#define BRAZE_OP(name, aten, cls, result, accepts, cost, raises, traits) BRAZE_RULE_##cls(name)
#include "graph/ops.def"
#undef BRAZE_OP
    default: return nullptr;
  }
}

bool takes_pointwise(const graph::Graph& g, const graph::Node& node) {
  if (!pointwise_rule(node.op)) return false;
  DType made = g.type(node.outputs[0]).dtype;
  bool accepted = graph::accepts(node.op, made);
  if (graph::op_row(node.op).accepts == graph::Accepts::NoBoolOperand)
    graph::Graph::for_each_operand(
        node, [&](graph::ValueId v) { accepted = accepted && graph::accepts(node.op, g.type(v).dtype); });
  if (!accepted) return false;
  bool integral = !is_floating(made);
  auto constant = [&](size_t i) -> std::optional<double> {
    if (auto* e = std::get_if<Expr>(&node.args[i]))
      if (auto c = g.arena().as_const(*e)) return static_cast<double>(*c);
    if (auto* d = std::get_if<double>(&node.args[i])) return *d;
    return std::nullopt;
  };
  if (graph::op_row(node.op).raises == graph::Raises::ZeroDivisor) return !integral || constant(1).value_or(0) != 0;
  const bool half = size_of(made) < 4;
  switch (node.op) {
    case Op::elu:
    case Op::celu:
    case Op::elu_backward:
    case Op::softshrink:
    case Op::hardshrink:
    case Op::softshrink_backward:
    case Op::hardshrink_backward:
    case Op::logit:
    case Op::logit_backward:
    case Op::round_decimals:
    case Op::nan_to_num:  // the rules take their numbers as they are
      return std::none_of(node.args.begin(), node.args.end(), [&](const graph::Arg& a) {
        auto* e = std::get_if<Expr>(&a);
        return e && !g.arena().as_const(*e);
      });
    case Op::special_ndtri:
    case Op::special_log_ndtr:
    case Op::special_erfcx:
    case Op::special_bessel_j0:
    case Op::special_bessel_j1:
    case Op::special_bessel_y0:
    case Op::special_bessel_y1:
    case Op::special_modified_bessel_i0:
    case Op::special_modified_bessel_i1:
    case Op::special_modified_bessel_k0:
    case Op::special_modified_bessel_k1:
    case Op::special_scaled_modified_bessel_k0:
    case Op::special_scaled_modified_bessel_k1:
    case Op::special_spherical_bessel_j0:  // eager refuses half types of these
    case Op::nextafter:
    case Op::frexp_Tensor: return !half;
    case Op::polygamma: return constant(0).value_or(2) < 2;
    case Op::pow_Tensor_Tensor:
    case Op::pow_Tensor_Scalar: return !integral || (constant(1).value_or(-1) >= 0 && *constant(1) <= 64);
    case Op::pow_Scalar: return !integral;
    default: return true;
  }
}

}  // namespace braze::lower
