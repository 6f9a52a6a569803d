#include <cmath>
#include <limits>

#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double alpha(const HostCall& c) { return c.number(2, 1); }

double gelu(double x, bool by_tanh) {
  if (!by_tanh) return x * 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

Rule arithmetic_rule(Op op) {
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (op) {
    case Op::add_Tensor: case Op::add_Scalar: return [](HostCall& c) { c.binary([&](double a, double b) { return a + alpha(c) * b; }); };
    case Op::sub_Tensor: case Op::sub_Scalar: return [](HostCall& c) { c.binary([&](double a, double b) { return a - alpha(c) * b; }); };
    case Op::rsub_Scalar: case Op::rsub_Tensor: return [](HostCall& c) { c.binary([&](double a, double b) { return b - alpha(c) * a; }); };
    case Op::mul_Tensor: case Op::mul_Scalar: return [](HostCall& c) { c.binary([](double a, double b) { return a * b; }); };
    case Op::div_Tensor: case Op::div_Scalar: return [](HostCall& c) { c.binary([](double a, double b) { return a / b; }); };
    case Op::pow_Tensor_Scalar: case Op::pow_Tensor_Tensor: case Op::pow_Scalar: return [](HostCall& c) { c.binary([](double a, double b) { return std::pow(a, b); }); };
    case Op::maximum: case Op::clamp_min: case Op::clamp_min_Tensor: return [](HostCall& c) { c.binary([](double a, double b) { return extreme({a, b}, true); }); };
    case Op::minimum: case Op::clamp_max: case Op::clamp_max_Tensor: return [](HostCall& c) { c.binary([](double a, double b) { return extreme({a, b}, false); }); };
    case Op::lerp_Scalar: case Op::lerp_Tensor: return [](HostCall& c) { c.elementwise(3, [](const Numbers& v) { return v[0] + v[2] * (v[1] - v[0]); }); };
    case Op::addcmul: return [](HostCall& c) { c.elementwise(3, [&](const Numbers& v) { return v[0] + c.number(3, 1) * v[1] * v[2]; }); };
    case Op::addcdiv: return [](HostCall& c) { c.elementwise(3, [&](const Numbers& v) { return v[0] + c.number(3, 1) * v[1] / v[2]; }); };
    case Op::clamp: return [](HostCall& c) { c.unary([&](double a) { return extreme({extreme({a, c.number(1, -kInfinity)}, true), c.number(2, kInfinity)}, false); }); };
    case Op::masked_fill_Scalar: case Op::masked_fill_Tensor: return [](HostCall& c) { c.elementwise(3, [](const Numbers& v) { return v[1] != 0 ? v[2] : v[0]; }); };
    case Op::bitwise_right_shift_Tensor_Scalar: return [](HostCall& c) { c.binary([](double a, double b) { return std::floor(std::ldexp(a, -static_cast<int>(b))); }); };
    case Op::leaky_relu_backward: return [](HostCall& c) { c.elementwise(3, [](const Numbers& v) { return v[1] > 0 ? v[0] : v[0] * v[2]; }); };
    case Op::copy: return [](HostCall& c) { c.binary([](double, double b) { return b; }); };
    case Op::where_self: return [](HostCall& c) { c.elementwise(3, [](const Numbers& v) { return v[0] != 0 ? v[1] : v[2]; }); };
    default: return nullptr;
  }
  // clang-format on
}

Rule comparison_rule(Op op) {
  // clang-format off: a table
  switch (op) {
    case Op::eq_Tensor: case Op::eq_Scalar: return [](HostCall& c) { c.binary([](double a, double b) { return a == b; }); };
    case Op::ne_Tensor: case Op::ne_Scalar: return [](HostCall& c) { c.binary([](double a, double b) { return a != b; }); };
    case Op::lt_Tensor: case Op::lt_Scalar: return [](HostCall& c) { c.binary([](double a, double b) { return a < b; }); };
    case Op::le_Tensor: case Op::le_Scalar: return [](HostCall& c) { c.binary([](double a, double b) { return a <= b; }); };
    case Op::gt_Tensor: case Op::gt_Scalar: return [](HostCall& c) { c.binary([](double a, double b) { return a > b; }); };
    case Op::ge_Tensor: case Op::ge_Scalar: return [](HostCall& c) { c.binary([](double a, double b) { return a >= b; }); };
    case Op::bitwise_and_Tensor: case Op::bitwise_and_Scalar: return [](HostCall& c) { c.binary([](double a, double b) { return static_cast<double>(static_cast<int64_t>(a) & static_cast<int64_t>(b)); }); };
    case Op::bitwise_or_Tensor: case Op::bitwise_or_Scalar: return [](HostCall& c) { c.binary([](double a, double b) { return static_cast<double>(static_cast<int64_t>(a) | static_cast<int64_t>(b)); }); };
    case Op::logical_and: return [](HostCall& c) { c.binary([](double a, double b) { return a != 0 && b != 0; }); };
    case Op::logical_or: return [](HostCall& c) { c.binary([](double a, double b) { return a != 0 || b != 0; }); };
    case Op::bitwise_not: return [](HostCall& c) { bool truth = c.tensor(0).dtype == DType::Bool; c.unary([=](double a) { return truth ? a == 0 : static_cast<double>(~static_cast<int64_t>(a)); }); };
    case Op::logical_not: return [](HostCall& c) { c.unary([](double a) { return a == 0; }); };
    default: return nullptr;
  }
  // clang-format on
}

Rule unary_rule(Op op) {
  // clang-format off: a table
  switch (op) {
    case Op::clone: case Op::_to_copy: case Op::contiguous: return [](HostCall& c) { c.unary([](double a) { return a; }); };
    case Op::neg: return [](HostCall& c) { c.unary([](double a) { return -a; }); };
    case Op::abs: return [](HostCall& c) { c.unary([](double a) { return std::fabs(a); }); };
    case Op::sign: return [](HostCall& c) { c.unary([](double a) { return (a > 0) - (a < 0); }); };
    case Op::floor: return [](HostCall& c) { c.unary([](double a) { return std::floor(a); }); };
    case Op::ceil: return [](HostCall& c) { c.unary([](double a) { return std::ceil(a); }); };
    case Op::trunc: return [](HostCall& c) { c.unary([](double a) { return std::trunc(a); }); };
    case Op::frac: return [](HostCall& c) { c.unary([](double a) { return a - std::trunc(a); }); };
    case Op::round: return [](HostCall& c) { c.unary([](double a) { return std::nearbyint(a); }); };  // halves to even
    case Op::exp: return [](HostCall& c) { c.unary([](double a) { return std::exp(a); }); };
    case Op::exp2: return [](HostCall& c) { c.unary([](double a) { return std::exp2(a); }); };
    case Op::expm1: return [](HostCall& c) { c.unary([](double a) { return std::expm1(a); }); };
    case Op::log: return [](HostCall& c) { c.unary([](double a) { return std::log(a); }); };
    case Op::log2: return [](HostCall& c) { c.unary([](double a) { return std::log2(a); }); };
    case Op::log10: return [](HostCall& c) { c.unary([](double a) { return std::log10(a); }); };
    case Op::log1p: return [](HostCall& c) { c.unary([](double a) { return std::log1p(a); }); };
    case Op::sqrt: return [](HostCall& c) { c.unary([](double a) { return std::sqrt(a); }); };
    case Op::rsqrt: return [](HostCall& c) { c.unary([](double a) { return 1 / std::sqrt(a); }); };
    case Op::reciprocal: return [](HostCall& c) { c.unary([](double a) { return 1 / a; }); };
    case Op::sin: return [](HostCall& c) { c.unary([](double a) { return std::sin(a); }); };
    case Op::cos: return [](HostCall& c) { c.unary([](double a) { return std::cos(a); }); };
    case Op::tan: return [](HostCall& c) { c.unary([](double a) { return std::tan(a); }); };
    case Op::asin: return [](HostCall& c) { c.unary([](double a) { return std::asin(a); }); };
    case Op::acos: return [](HostCall& c) { c.unary([](double a) { return std::acos(a); }); };
    case Op::atan: return [](HostCall& c) { c.unary([](double a) { return std::atan(a); }); };
    case Op::sinh: return [](HostCall& c) { c.unary([](double a) { return std::sinh(a); }); };
    case Op::cosh: return [](HostCall& c) { c.unary([](double a) { return std::cosh(a); }); };
    case Op::tanh: return [](HostCall& c) { c.unary([](double a) { return std::tanh(a); }); };
    case Op::erf: return [](HostCall& c) { c.unary([](double a) { return std::erf(a); }); };
    case Op::erfc: return [](HostCall& c) { c.unary([](double a) { return std::erfc(a); }); };
    case Op::lgamma: return [](HostCall& c) { c.unary([](double a) { return std::lgamma(a); }); };
    case Op::i0: return [](HostCall& c) { c.unary([](double a) { return std::cyl_bessel_i(0, std::fabs(a)); }); };
    case Op::isnan: return [](HostCall& c) { c.unary([](double a) { return std::isnan(a); }); };
    case Op::sigmoid: return [](HostCall& c) { c.unary(sigmoid); };
    case Op::silu: return [](HostCall& c) { c.unary([](double a) { return a * sigmoid(a); }); };
    case Op::relu: return [](HostCall& c) { c.unary([](double a) { return a < 0 ? 0 : a; }); };
    case Op::gelu: return [](HostCall& c) { c.unary([&](double a) { return gelu(a, c.text(1) == "tanh"); }); };
    default: return nullptr;
  }
  // clang-format on
}

}  // namespace

Rule pointwise_rule(Op op) {
  for (auto table : {arithmetic_rule, comparison_rule, unary_rule})
    if (Rule rule = table(op)) return rule;
  return nullptr;
}

}  // namespace braze::graph::host
