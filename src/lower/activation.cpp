// Activations and the derivatives of pointwise operators.
#include "lower/element_rules.h"

namespace braze::lower {

namespace {

constexpr double kSqrt1_2 = 0.70710678118654752440;
constexpr double kSqrt2_Pi = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kCubic = 0.044715;
constexpr double kSeluAlpha = 1.6732632423543772848170429916717;
constexpr double kSeluScale = 1.0507009873554804934193349852946;

bool tanh_form(const Point& p, size_t arg) { return std::get<std::string>(p.arg(arg)) == "tanh"; }
Val cube(Val x) { return x * x * x; }
Val elu_of(Val x, double alpha, double scale, double input_scale) {
  return where(x < 0.0, expm1(x * input_scale) * (alpha * scale), x * scale);
}
Val hard(Val x) { return min(max(x + 3.0, 0.0), 6.0); }

// tanh(log(1 + e^x)), and the sigmoid of x. In float32 the first is n / (n + 2) with n = e^x (e^x + 2): nothing is
// subtracted, and from 20 on it is 1.
struct Mish {
  Val factor, rise;
  explicit Mish(Val x) : factor(x), rise(x) {
    if (x.dtype() == DType::F64) {
      factor = tanh(where(x > 20.0, x, log1p(exp(x))));
      rise = sigmoid(x);
    } else {
      Val power = exp(min(x, 20.0)), n = power * (power + 2.0);
      factor = n / (n + 2.0);
      rise = power / (power + 1.0);
    }
  }
};

// A number that elements are compared with: eager's kernels take it in float on a CPU, in the tensor's dtype on a GPU.
Val limit(const Point& p, size_t arg) { return p.type().device.type == DeviceType::CPU ? p.in(arg) : p.held(arg); }

}  // namespace

RULE(relu) { return max(p.in(0), 0.0); }
RULE(relu6) { return min(max(p.in(0), 0.0), 6.0); }
RULE(gelu) {
  Val x = p.in(0);
  if (tanh_form(p, 1)) return 0.5 * x * (1.0 + tanh(kSqrt2_Pi * (x + kCubic * cube(x))));
  return 0.5 * x * (1.0 + erf(x * kSqrt1_2));
}
RULE(silu) { return p.in(0) * sigmoid(p.in(0)); }
RULE(leaky_relu) {
  Val x = p.in(0);
  return where(x > 0.0, x, x * p.in(1));
}
RULE(elu) { return elu_of(p.in(0), p.number(1), p.number(2), p.number(3)); }
RULE(celu) { return elu_of(p.in(0), p.number(1), 1.0, 1.0 / p.number(1)); }
RULE(selu) { return elu_of(p.in(0), kSeluAlpha, kSeluScale, 1.0); }
RULE(softplus) {
  Val x = p.in(0), beta = p.in(1), scaled = x * beta;
  return where(scaled > p.in(2), x, log1p(exp(scaled)) / beta);
}
RULE(mish) { return p.in(0) * Mish(p.in(0)).factor; }
RULE(hardtanh) { return min(max(p.in(0), p.converted(1)), p.converted(2)); }
RULE(hardswish) { return p.in(0) * hard(p.in(0)) / 6.0; }
RULE(hardsigmoid) { return hard(p.in(0)) / 6.0; }
RULE(threshold) { return where(p.in(0) <= limit(p, 1), p.held(2), p.in(0)); }
RULE(softshrink) {
  Val x = p.in(0), l = limit(p, 1);
  return where(x > l, x - l, where(x < -l, x + l, where(isnan(x), x, 0.0)));
}
RULE(hardshrink) {
  Val x = p.in(0), l = p.held(1);
  return where((x >= -l) & (x <= l), 0.0, x);
}
RULE(log_sigmoid_forward) {
  Val x = p.in(0), e = exp(-abs(x));
  return p.output() == 0 ? min(x, 0.0) - log1p(e) : e;
}
RULE(_prelu_kernel) {
  Val x = p.in(0);
  return where(x > 0.0, x, p.in(1) * x);
}

RULE(gelu_backward) {
  Val g = p.in(0), x = p.in(1);
  if (tanh_form(p, 2)) {
    Val t = tanh(kSqrt2_Pi * (x + kCubic * cube(x)));
    Val inner = kSqrt2_Pi * (1.0 + 3.0 * kCubic * (x * x));
    return g * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * inner);
  }
  Val cdf = 0.5 * (1.0 + erf(x * kSqrt1_2));
  Val pdf = exp(-0.5 * x * x) * (0.5 * kSqrt2_Pi);
  return g * (cdf + x * pdf);
}
RULE(silu_backward) {
  Val g = p.in(0), x = p.in(1), s = sigmoid(x);
  return g * s * (1.0 + x * (1.0 - s));
}
RULE(threshold_backward) { return where(p.in(1) <= limit(p, 2), 0.0, p.in(0)); }
RULE(leaky_relu_backward) { return where(p.in(1) > 0.0, p.in(0), p.in(0) * p.in(2)); }
RULE(elu_backward) {
  double alpha = p.number(1), scale = p.number(2), input_scale = p.number(3);
  Val g = p.in(0), y = p.in(5);
  if (std::get<bool>(p.arg(4))) return where(y > 0.0, g * scale, g * input_scale * (y + alpha * scale));
  return where(y > 0.0, g * scale, g * input_scale * (alpha * scale) * exp(y * input_scale));
}
RULE(softplus_backward) {
  Val g = p.in(0), scaled = p.in(1) * p.in(2), z = exp(scaled);
  return where(scaled > p.in(3), g, g * z / (z + 1.0));
}
RULE(mish_backward) {
  Val g = p.in(0), x = p.in(1);
  const Mish m(x);
  return g * (m.factor + x * m.rise * (1.0 - m.factor * m.factor));
}
RULE(hardtanh_backward) {
  Val x = p.in(1);
  return where((x > p.in(2)) & (x < p.in(3)), p.in(0), p.in(0).same(0.0));
}
RULE(hardswish_backward) {
  Val g = p.in(0), x = p.in(1);
  return where(x <= -3.0, 0.0, where(x >= 3.0, g, g * (x / 3.0 + 0.5)));
}
RULE(hardsigmoid_backward) {
  Val x = p.in(1);
  return where((x > -3.0) & (x < 3.0), p.in(0) / 6.0, p.in(0).same(0.0));
}
RULE(sigmoid_backward) { return p.in(0) * (1.0 - p.in(1)) * p.in(1); }
RULE(tanh_backward) { return p.in(0) * (1.0 - p.in(1) * p.in(1)); }
RULE(softshrink_backward) {
  Val x = p.in(1), l = p.held(2);
  return where((x > l) | (x < -l), p.in(0), p.in(0).same(0.0));
}
RULES_EQUAL(hardshrink_backward, softshrink_backward)
RULE(log_sigmoid_backward) {  // the saved buffer is exp(-|x|) on the CPU and empty elsewhere: computed again
  Val g = p.in(0), x = p.in(1), z = exp(-abs(x)), part = z / (1.0 + z);
  return g * where(x < 0.0, 1.0 - part, part);
}
RULE(logit_backward) {
  Val g = p.in(0), x = p.in(1), d = g / (x * (1.0 - x));
  if (p.none(2)) return where((x < 0.0) | (x > 1.0), std::numeric_limits<double>::quiet_NaN(), d);
  return where((x < p.number(2)) | (x > 1.0 - p.number(2)), 0.0, d);
}
RULE(native_dropout_backward) { return p.in(0) * p.in(1) * p.in(2); }
RULE(_prelu_kernel_backward) {
  Val g = p.in(0), x = p.in(1);
  return p.output() == 0 ? where(x > 0.0, g, p.in(2) * g) : where(x > 0.0, 0.0, x * g);
}

}  // namespace braze::lower
