// Special functions: each in the dtype that eager computes it in, from the same identities, with Chebyshev series
// (tools/chebyshev.py) for what is left. Both sides of a choice are computed, so arguments are moved to where a series
// holds before it is taken.
#include <cmath>

#include "lower/element_rules.h"
#include "lower/special_tables.h"

namespace braze::lower {

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kPi = std::numbers::pi, kTwoOverPi = 2 / kPi;

// Clenshaw's recurrence, with the terms that count in x's dtype.
Val series(Val x, const Series& f) {
  const auto& c = f.coefficients;
  const double least = std::abs(c[0]) * std::ldexp(1.0, x.dtype() == DType::F64 ? -56 : -28);
  size_t n = c.size();
  while (n > 2 && std::abs(c[n - 1]) < least) --n;
  const double width = f.high - f.low;
  Val twice = fma(x, x.same(4 / width), x.same(-2 * (f.high + f.low) / width));
  Val last = x.same(c[n - 1]), before = x.same(0.0);
  for (size_t k = n - 1; k-- > 1;) {
    Val next = fma(twice, last, c[k] - before);
    before = last;
    last = next;
  }
  return fma(twice * 0.5, last, c[0] - before);
}

// f(x) up to `edge`, beyond it g(1 / x) / sqrt(x); x is positive.
Val near_or_far(Val x, double edge, Val near, const Series& far) {
  return where(x <= edge, near, series(recip(max(x, edge)), far) / sqrt(x));
}

Val scaled_i0(Val x) {
  Val a = abs(x);
  return near_or_far(a, 8, series(min(a, 8.0), kI0Near), kI0Far);
}
Val scaled_i1(Val x) {
  Val a = abs(x), r = near_or_far(a, 8, a * series(min(a, 8.0), kI1Near), kI1Far);
  return where(x < 0.0, -r, r);
}
Val bessel_i0(Val x) { return exp(abs(x)) * scaled_i0(x); }
Val bessel_i1(Val x) { return exp(abs(x)) * scaled_i1(x); }

// K0 or K1, if `scaled` times exp(x).
Val bessel_k(Val x, int order, bool scaled) {
  Val z = min(x, 2.0), square = z * z, logarithm = log(z * 0.5), growth = exp(z), near = x;
  if (order == 0 && x.dtype() == DType::F32) logarithm = log(z) - std::numbers::ln2;  // eager halves in double
  if (order == 0)
    near = series(square, kK0Near) - logarithm * (growth * series(z, kI0Near));
  else
    near = logarithm * (growth * z * series(z, kI1Near)) + series(square, kK1Near) / z;
  Val beyond = max(x, 2.0), far = series(recip(beyond), order ? kK1Far : kK0Far);
  if (scaled)
    near = near * growth;
  else
    far = exp(-beyond) * far;
  Val r = where(x <= 2.0, near, far / sqrt(beyond));
  return where(x == 0.0, kInf, where(x < 0.0, kNaN, r));
}

// J and Y beyond 5: their amplitudes, and the cosine and sine of the phase.
struct Oscillation {
  Val even, odd, cosine, sine, root;
};
Oscillation oscillation(Val x, int order) {
  x = max(x, 5.0);
  Val v = 25.0 / (x * x), phase = x - (2 * order + 1) * kPi / 4;
  return {series(v, order ? kCosine1 : kCosine0), 5.0 / x * series(v, order ? kSine1 : kSine0),
          unary(OpCode::Cos, phase), sin(phase), sqrt(x)};
}
const double kAmplitude = std::sqrt(kTwoOverPi);

Val bessel_j(Val x, int order) {
  Val a = abs(x), z = min(a, 5.0), v = z * z;
  const double* zeros = order ? kJ1Zeros : kJ0Zeros;
  Val near = (v - zeros[0]) * (v - zeros[1]) * series(v, order ? kJ1Near : kJ0Near);
  if (order) near = max(min(x, 5.0), -5.0) * near;
  Oscillation o = oscillation(a, order);
  Val far = (o.even * o.cosine - o.odd * o.sine) * kAmplitude / o.root;
  if (order) far = where(x < 0.0, -far, far);
  return where(a <= 5.0, near, far);
}

Val bessel_y(Val x, int order) {
  Val z = min(x, 5.0), v = z * z, logarithm = log(z), j = bessel_j(z, order), near = x;
  if (order == 0)
    near = series(v, kY0Near) + logarithm * j * kTwoOverPi;
  else
    near = z * series(v, kY1Near) + (j * logarithm - recip(z)) * kTwoOverPi;
  Oscillation o = oscillation(x, order);
  Val far = (o.even * o.sine + o.odd * o.cosine) * kAmplitude / o.root;
  return where(x == 0.0, -kInf, where(x < 0.0, kNaN, where(x <= 5.0, near, far)));
}

// exp(x^2) erfc(x)
Val erfcx(Val x) {
  const double inverse_root = 1 / std::sqrt(kPi);
  Val a = abs(x), moved = 1.0 - 7.5 / (a + 3.75);
  Val r = where(a > 1e7, inverse_root / a, series(moved, kErfcx) / (a * 2.0 + 1.0));
  return where(x < 0.0, exp(x * x) * 2.0 - r, r);
}

// The normal quantile of p below 0.13, as a positive number.
Val quantile_tail(Val p) {
  Val z = sqrt(log(p) * -2.0), u = recip(z);
  Val rest = series(max(u, 0.125), kQuantileTail);
  rest = where(z < 8.0, rest, series(min(u, 0.125), kQuantileEnd));
  return z - log(z) * u - rest;
}

Val log_gamma_positive(Val x) {
  // Up or down to [1.5, 2.5], by factors.
  Val z = x, factor = x.same(1.0);
  for (int k = 0; k < 6; ++k) {
    Val down = z > 2.5;
    z = where(down, z - 1.0, z);
    factor = where(down, factor * z, factor);
  }
  Val up = x < 1.5, twice = x < 0.5;
  factor = where(twice, x * (x + 1.0), where(up, x, factor));
  z = where(twice, x + 2.0, where(up, x + 1.0, z));
  z = max(min(z, 2.5), 1.5);
  Val big = x >= 8.0, logarithm = log(where(big, x, factor));
  Val near = (z - 1.0) * (z - 2.0) * series(z, kLogGamma) + where(up, -logarithm, logarithm);
  Val u = recip(max(x, 8.0));
  const double constant = (std::log(2 * kPi) - 1) / 2;
  Val far = (x - 0.5) * (logarithm - 1.0) + constant + u * series(u * u, kStirling);
  return where(big, far, near);
}

Val log_gamma(Val x) {
  Val negative = x < 0.0, a = abs(x), part = a - floor(a);
  Val sine = sin(min(part, 1.0 - part) * kPi);
  Val r = log_gamma_positive(where(negative, 1.0 - x, x));
  r = where(negative, where(part == 0.0, kInf, -log(sine / kPi) - r), r);
  return where(isinf(x), kInf, r);
}

Val digamma_of(Val x) {
  Val y = where(x < 0.0, 1.0 - x, x), r = x.same(0.0);
  for (int k = 0; k < 10; ++k) {
    Val below = y < 10.0;
    r = where(below, r - recip(y), r);
    y = where(below, y + 1.0, y);
  }
  // Bernoulli's numbers.
  Val z = recip(y * y), p = x.same(1.0 / 12);
  for (double c : {-691.0 / 32760, 1.0 / 132, -1.0 / 240, 1.0 / 252, -1.0 / 120, 1.0 / 12}) p = fma(p, z, x.same(c));
  r = r + log(y) - 0.5 / y - p * z;
  // cot(pi x) of the fraction, in double: what pi is off by would be multiplied near a pole.
  Val part = (x - trunc(x)).to(DType::F64);
  Val cotangent = (kPi / unary(OpCode::Tan, part * kPi)).to(x.dtype());
  r = where(x < 0.0, where(x == trunc(x), kNaN, r - cotangent), r);
  return where(x == 0.0, copysign(x.same(kInf), -x), r);
}

Val trigamma_of(Val x) {
  Val mirrored = x < 0.5, sine = sin(x * kPi), y = where(mirrored, 1.0 - x, x);
  Val r = where(mirrored, -(x.same(kPi * kPi) / (sine * sine)), x.same(0.0));
  for (int k = 0; k < 6; ++k) {
    r = r + recip(y * y);
    y = y + 1.0;
  }
  Val z = recip(y * y);
  Val rest = 1.0 + recip(y * 2.0) + z * (1.0 / 6 - z * (1.0 / 30 - z * (1.0 / 42)));
  r = r + rest / y;
  return where(mirrored, -r, r);
}

// x log1p(y), 0 where x is; NaN of y stays. Vectors of log1p lose the smallest numbers, which are their own logarithm.
Val x_log1p(const Point& p) {
  Val x = p.converted(0), y = p.converted(1), logarithm = where(abs(y) < 1e-30, y, log1p(y));
  return where(isnan(y), y, where(x == 0.0, 0.0, x * logarithm));
}

}  // namespace

RULE(i0) { return bessel_i0(p.in(0)); }
RULE(special_i0e) { return scaled_i0(p.in(0)); }
RULE(special_i1) { return bessel_i1(p.in(0)); }
RULE(special_i1e) { return scaled_i1(p.in(0)); }
RULES_EQUAL(special_modified_bessel_i0, i0)
RULES_EQUAL(special_modified_bessel_i1, special_i1)
RULE(special_modified_bessel_k0) { return bessel_k(p.in(0), 0, false); }
RULE(special_modified_bessel_k1) { return bessel_k(p.in(0), 1, false); }
RULE(special_scaled_modified_bessel_k0) { return bessel_k(p.in(0), 0, true); }
RULE(special_scaled_modified_bessel_k1) { return bessel_k(p.in(0), 1, true); }
RULE(special_bessel_j0) { return bessel_j(p.in(0), 0); }
RULE(special_bessel_j1) { return bessel_j(p.in(0), 1); }
RULE(special_bessel_y0) { return bessel_y(p.in(0), 0); }
RULE(special_bessel_y1) { return bessel_y(p.in(0), 1); }
RULE(special_spherical_bessel_j0) {
  Val x = p.in(0), v = x * x, near = x.same(1 / 6227020800.0);
  for (double c : {-1 / 39916800.0, 1 / 362880.0, -1 / 5040.0, 1 / 120.0, -1 / 6.0, 1.0})
    near = fma(near, v, x.same(c));
  return where(isinf(x), 0.0, where(abs(x) < 0.5, near, sin(x) / x));
}

RULE(special_erfcx) { return erfcx(p.in(0)); }
RULE(special_log_ndtr) {
  Val x = p.in(0), t = x * std::sqrt(0.5);
  Val tail = log(erfcx(max(-t, 0.5)) * 0.5) - t * t;
  return where(x < -1.0, tail, log1p(unary(OpCode::Erfc, t) * -0.5));
}
RULE(special_ndtri) {
  Val y = p.in(0), from_middle = y - 0.5, upper = from_middle > 0.0;
  Val center = from_middle * series(min(from_middle * from_middle, kQuantileCenter.high), kQuantileCenter);
  Val tail = quantile_tail(where(upper, 1.0 - y, y));
  Val r = where(abs(from_middle) <= 0.37, center, where(upper, tail, -tail));
  r = where(y == 0.0, -kInf, where(y == 1.0, kInf, r));
  return where((y < 0.0) | (y > 1.0), kNaN, r);
}
NO_RULE(erfinv)  // eager's is MKL's, which is faster

RULE(lgamma) { return log_gamma(p.in(0)); }
RULE(digamma) { return digamma_of(p.in(0)); }
RULE(polygamma) {  // of higher orders calls are left: see takes_pointwise
  Val x = p.in(1);
  return p.number(0) == 0 ? digamma_of(x) : trigamma_of(x);
}

RULE(special_xlog1py) { return x_log1p(p); }
RULES_EQUAL(special_xlog1py_self_scalar, special_xlog1py)
RULES_EQUAL(special_xlog1py_other_scalar, special_xlog1py)

// Single precision by way of double, where no square overflows.
RULE(hypot) {
  Val a = abs(p.in(0)), b = abs(p.in(1));
  if (a.dtype() != DType::F64) {
    Val x = a.to(DType::F64), y = b.to(DType::F64), root = sqrt(fma(x, x, y * y)).to(a.dtype());
    return where(isinf(a) | isinf(b), kInf, root);
  }
  Val most = max(a, b), least = min(a, b), ratio = least / most;
  Val r = where(most == 0.0, 0.0, most * sqrt(fma(ratio, ratio, a.same(1.0))));
  return where(isinf(a) | isinf(b), kInf, r);
}

namespace {

DType bits_of(DType t) { return t == DType::F64 ? DType::I64 : DType::I32; }
Val bitcast(Val x, DType t) { return {x.body, x.body->bitcast(x.id, t)}; }

}  // namespace

// Floats of one sign are ordered as their bits are.
RULE(nextafter) {
  Val x = p.in(0), y = p.in(1);
  const double least = x.dtype() == DType::F64 ? std::numeric_limits<double>::denorm_min()
                                               : static_cast<double>(std::numeric_limits<float>::denorm_min());
  Val bits = bitcast(x, bits_of(x.dtype())), away = ((x < y) & (x > 0.0)) | ((x > y) & (x < 0.0));
  Val next = bitcast(where(away, bits + bits.same(1), bits - bits.same(1)), x.dtype());
  next = where(x == 0.0, copysign(x.same(least), y), next);
  return where(isnan(x) | isnan(y), x + y, where(x == y, y, next));
}

// x = mantissa * 2^exponent, the mantissa's magnitude in [1/2, 1).
RULE(frexp_Tensor) {
  Val x = p.own(0);
  const bool wide = x.dtype() == DType::F64;
  const int fraction = wide ? 52 : 23, bias = wide ? 1022 : 126;
  const DType t = bits_of(x.dtype());
  const double smallest =
      wide ? std::numeric_limits<double>::min() : static_cast<double>(std::numeric_limits<float>::min());
  Val tiny = abs(x) < smallest, normal = where(tiny, x * std::ldexp(1.0, fraction), x), bits = bitcast(normal, t);
  Val plain = isnan(x) | isinf(x) | (x == 0.0);
  Val exponent = binary(OpCode::Shr, bits, bits.same(fraction)) & bits.same((1 << (wide ? 11 : 8)) - 1);
  if (p.output() == 0) {
    const int64_t keep = wide ? ~(int64_t{0x7ff} << 52) : int64_t{~(0xff << 23)};
    Val mask = p.wrap(p.body.constant(keep, t)), half = p.wrap(p.body.constant(int64_t{bias} << fraction, t));
    return where(plain, x, bitcast((bits & mask) | half, x.dtype()));
  }
  exponent = exponent - bits.same(bias);
  exponent = where(tiny, exponent - bits.same(fraction), exponent);
  return where(plain, bits.same(0), exponent).to(DType::I32);
}

}  // namespace braze::lower
