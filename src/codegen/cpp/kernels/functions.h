// Elementary functions, of vectors of float by polynomials (within 2 units in the last place), else by the library that
// PyTorch computes with (SLEEF) or, lane by lane, the C library. NaN, infinities, zeros of both signs and denormals
// give IEEE results.
#pragma once
#include "arithmetic.h"

// clang-format off: a list
#define BRAZE_FUNCTIONS(one, two)                                                                        \
  one(exp) one(exp2) one(expm1) one(log) one(log2) one(log10) one(log1p) one(sin) one(cos) one(tan)      \
  one(asin) one(acos) one(atan) one(sinh) one(cosh) one(tanh) one(asinh) one(acosh) one(atanh) one(erf)  \
  one(erfc) two(pow) two(atan2)
// clang-format on
#define BRAZE_LIBM1(name)        \
  extern "C" {                   \
  double name(double) noexcept;  \
  float name##f(float) noexcept; \
  }
#define BRAZE_LIBM2(name)               \
  extern "C" {                          \
  double name(double, double) noexcept; \
  float name##f(float, float) noexcept; \
  }
BRAZE_FUNCTIONS(BRAZE_LIBM1, BRAZE_LIBM2)
#undef BRAZE_LIBM1
#undef BRAZE_LIBM2

namespace braze {

// --- of leaves, by a library
template <int Bytes>
struct Wide {
  typedef float Floats __attribute__((vector_size(Bytes)));
  typedef double Doubles __attribute__((vector_size(Bytes)));
};
// A leaf through a function of vectors of `To`, of which it may fill a part.
template <class To, class F, class L, class... More>
BRAZE_INLINE L through(F f, L x, More... more) {
  if constexpr (sizeof(To) == sizeof(L)) {
    return f(__builtin_bit_cast(To, x), __builtin_bit_cast(To, more)...);
  } else {
    auto fill = [](L v) BRAZE_LAMBDA {
      To to{};
      for (unsigned i = 0; i < sizeof(To) / element_bytes<L>; ++i) to[i] = v[i < kLanes ? i : 0];
      return to;
    };
    const To r = f(fill(x), fill(more)...);
    L out;
    __builtin_memcpy(&out, &r, sizeof out);
    return out;
  }
}
// What a kernel's own text specialises where the library has the function: see BRAZE_VECTOR_FUNCTION1.
template <class Name, class L>
struct OfLibrary {
  static constexpr bool there = false;
};
template <class Name, class L, class... More>
BRAZE_INLINE L library(Name name, L x, More... more) {
  if constexpr (is_number<L>)
    return Name::one(x, more...);
  else if constexpr (OfLibrary<Name, L>::there)
    return OfLibrary<Name, L>::call(x, more...);
  else
    return each_lane<L>([&](int i) BRAZE_LAMBDA { return Name::one(x[i], more[i]...); });
}
#define BRAZE_NAME1(name)                              \
  struct Lib_##name {                                  \
    static double one(double x) { return ::name(x); }  \
    static float one(float x) { return ::name##f(x); } \
  };
#define BRAZE_NAME2(name)                                          \
  struct Lib_##name {                                              \
    static double one(double x, double y) { return ::name(x, y); } \
    static float one(float x, float y) { return ::name##f(x, y); } \
  };
BRAZE_FUNCTIONS(BRAZE_NAME1, BRAZE_NAME2)
#undef BRAZE_NAME1
#undef BRAZE_NAME2
// `symbol` computes the function for vectors of so many bytes of `type` (Floats, Doubles).
#define BRAZE_VECTOR_FUNCTION1(name, type, bytes, symbol)                                            \
  extern "C" braze::Wide<bytes>::type symbol(braze::Wide<bytes>::type) noexcept;                     \
  template <>                                                                                        \
  struct braze::OfLibrary<braze::Lib_##name, braze::Leaf<braze::Number<braze::Wide<bytes>::type>>> { \
    using L = Leaf<Number<Wide<bytes>::type>>;                                                       \
    static constexpr bool there = true;                                                              \
    static BRAZE_INLINE L call(L x) { return through<Wide<bytes>::type>(symbol, x); }                \
  };
#define BRAZE_VECTOR_FUNCTION2(name, type, bytes, symbol)                                                  \
  extern "C" braze::Wide<bytes>::type symbol(braze::Wide<bytes>::type, braze::Wide<bytes>::type) noexcept; \
  template <>                                                                                              \
  struct braze::OfLibrary<braze::Lib_##name, braze::Leaf<braze::Number<braze::Wide<bytes>::type>>> {       \
    using L = Leaf<Number<Wide<bytes>::type>>;                                                             \
    static constexpr bool there = true;                                                                    \
    static BRAZE_INLINE L call(L x, L y) { return through<Wide<bytes>::type>(symbol, x, y); }              \
  };

// --- of leaves of float
template <class L, class... C>
BRAZE_INLINE L polynomial(L x, double highest, C... next) {
  L p = num(x, highest);
  ((p = fma(p, x, num(x, next))), ...);
  return p;
}

// x * factor rounded to a whole number n below 2^21, ties to even: what is added to 1.5 * 2^23 is one, in the low bits.
template <class L>
struct Whole {
  L y;  // n + move in its low bits
  L n;
};
template <class L>
BRAZE_INLINE L magic(L like, int move) {
  return num(like, 12582912.0 + move);
}
template <class L>
BRAZE_INLINE Whole<L> whole(L x, double factor, L magic) {
  const L y = fma(x, num(x, factor), magic);
  return {y, y - magic};
}
// 2^n is 2^(n + move), a normal number whose exponent are bits of a `Whole`, times 2^-move, with which all is rounded
// at last.
constexpr int kExponent = 127;
template <class L>
struct Move {
  L magic, last;
};
// Below `least` nothing is left: 0 at once, as rounding to it takes a hundred times as long.
template <class L>
BRAZE_INLINE L down_by_32(L x, double least) {
  return x < num(x, least) ? num(x, 0) : num(x, 0x1p-32);
}
constexpr double kLeastExp = -103.97208, kLeastExp2 = -150;
// Of n in [-157, 129] that is above 0 only where x is not negative.
template <class L>
BRAZE_INLINE Move<L> by_sign_of(L x, double least) {
  const auto below = x < num(x, 0);
  return {below ? magic(x, kExponent + 32) : magic(x, kExponent - 2), below ? down_by_32(x, least) : num(x, 4)};
}
template <class L>
BRAZE_INLINE L power(L y) {
  return bits_as<float>(bits_as<int32_t>(y) << 23);
}
// exp(r) - 1 for |r| <= ln(2)/2, to 2^-31 of itself.
template <class L>
BRAZE_INLINE L exp_tail(L r) {
  return fma(polynomial(r, 1.9944254e-4, 1.39327103e-3, 8.33320804e-3, 4.16664891e-2, 1.66666672e-1, 5.0e-1), r * r, r);
}
template <class L>
struct Reduced {
  L y, r;  // x = n * ln(2) + r, n + move in the low bits of y
};
template <class L>
BRAZE_INLINE Reduced<L> reduce_ln2(L x, L magic) {
  const auto [y, n] = whole(x, 1.4426950408889634, magic);
  return {y, fma(n, num(x, 2.12194440e-4), fma(n, num(x, -0.693359375), x))};
}
template <class L>
BRAZE_INLINE L exp_moved(L x, Move<L> move) {
  const auto [y, r] = reduce_ln2(x, move.magic);
  return (exp_tail(r) + 1) * power(y) * move.last;
}
template <class L>
BRAZE_INLINE L exp_float(L x) {
  x = at_least(num(x, -104.5), at_most(num(x, 89.0), x));
  return exp_moved(x, by_sign_of(x, kLeastExp));
}
template <class L>
BRAZE_INLINE L exp2_float(L x) {
  const L c = at_least(num(x, -151.0), at_most(num(x, 129.0), x));
  const auto move = by_sign_of(c, kLeastExp2);
  const auto [y, n] = whole(c, 1, move.magic);
  // The product with ln(2) in two parts, as its rounding error is multiplied by the result.
  const L f = c - n, ln2 = num(x, 0.6931471805599453), r = f * ln2, low = fma(f, ln2, -r);
  return (exp_tail(r) + low + 1) * power(y) * move.last;
}
template <class L>
BRAZE_INLINE L expm1_float(L x) {
  const auto [y, r] = reduce_ln2(at_least(num(x, -20.0), at_most(num(x, 88.8), x)), magic(x, kExponent - 1));
  // 2^n (1 + t) - 1 through 2^(n-1), which does not overflow before the result does.
  const L t = exp_tail(r), s = power(y), half = fma(s, t, s - num(x, 0.5));
  return with_sign(half + half, x);
}
// exp(|x|) / 2, which does not overflow before the result does.
template <class L>
BRAZE_INLINE L half_exp(L x) {
  const auto [y, r] = reduce_ln2(at_most(num(x, 90.0), magnitude(x)), magic(x, kExponent - 3));
  return (exp_tail(r) + 1) * power(y) * 4;
}
template <class L>
BRAZE_INLINE L cosh_float(L x) {
  const L h = half_exp(x);
  return h + num(x, 0.25) / h;
}
template <class L>
BRAZE_INLINE L sinh_float(L x) {
  const L s = x * x;
  // The series: five terms are exact to 2^-32 up to 1.
  const L p = polynomial(s, 2.505210838544172e-8, 2.755731922398589e-6, 1.984126984126984e-4, 8.333333333333333e-3,
                         1.6666666666666666e-1);
  const L small = fma(p * s, x, x), h = half_exp(x), large = h - num(x, 0.25) / h;
  // The sign last: the small form gives +0 for -0.
  return with_sign(magnitude(x) > num(x, 1) ? large : small, x);
}

template <class L>
struct LogParts {
  L f, y, e;  // log(x) = (f + y) + e ln(2), f = m - 1 exact
};
template <class L>
BRAZE_INLINE LogParts<L> log_parts(L x) {
  const auto tiny = x < num(x, 1.17549435e-38);
  const L scaled = tiny ? x * num(x, 8388608.0) : x;
  const auto i = bits_as<int32_t>(scaled), e = (i - 0x3f3504f3) >> 23;
  L ef = convert<float>(e);
  ef = tiny ? ef - num(x, 23) : ef;
  const L f = bits_as<float>(i - (e << 23)) - 1, z = f * f;
  const L p = polynomial(f, 7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                         -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1);
  return {f, fma(z, num(x, -0.5), f * z * p), ef};
}
// The values that the polynomial does not see: 0, negative, infinity, NaN.
template <class L>
BRAZE_INLINE L log_special(L x, L r) {
  r = x == num(x, __builtin_inf()) ? x : r;
  r = x == num(x, 0) ? num(x, -__builtin_inf()) : r;
  return x >= num(x, 0) ? r : num(x, __builtin_nan(""));
}
template <class L>
BRAZE_INLINE L log_float(L x) {
  const auto l = log_parts(x);
  const L y = fma(l.e, num(x, -2.12194440e-4), l.y);
  return log_special(x, fma(l.e, num(x, 0.693359375), l.f + y));
}
template <class L>
BRAZE_INLINE L log2_float(L x) {
  const auto l = log_parts(x);
  // log2(e) = 1.4375 + rest: the product of the leading part with f is nearly exact.
  const L rest = num(x, 0.00519504088896341), lead = num(x, 1.4375);
  const L low = fma(l.y, lead, fma(l.f, rest, l.y * rest));
  return log_special(x, fma(l.f, lead, low) + l.e);
}
template <class L>
BRAZE_INLINE L log10_float(L x) {
  const auto l = log_parts(x);
  const L rest = num(x, 7.00731903251827651129e-4), lead = num(x, 4.3359375e-1);
  L low = l.e * num(x, 2.48745663981195213739e-4);
  low = fma(l.f, lead, fma(l.y, lead, fma(l.f, rest, fma(l.y, rest, low))));
  return log_special(x, fma(l.e, num(x, 3.00781250e-1), low));
}
template <class L>
BRAZE_INLINE L log1p_float(L x) {
  const L one = num(x, 1), u = x + one;
  const L lost = x >= one ? one - (u - x) : x - (u - one);  // what rounding took from u
  const auto l = log_parts(u);
  const L y = fma(l.e, num(x, -2.12194440e-4), l.y + lost / u);
  const L r = log_special(u, fma(l.e, num(x, 0.693359375), l.f + y));
  return u == one ? x : r;
}
// 1 / (2^n t + 1 + 2^n), where -x = n ln(2) + r and t = exp(r) - 1: within 2 units in the last place, the 1 added
// before the power, so that it counts where that is 2^24. From n = 127 on what remains of -x goes into the polynomial,
// so that the sum becomes infinite where eager's does.
template <class L>
BRAZE_INLINE L sigmoid_float(L x) {
  const L one = num(x, 1), move = magic(x, kExponent), t = at_most(num(x, 30), x);
  const L y = at_most(magic(x, kExponent + 127), fma(t, num(x, -1.4426950408889634), move)), n = y - move;
  const L minus_r = fma(n, num(x, -2.12194440e-4), fma(n, num(x, 0.693359375), t)), s = power(y);
  return one / (fma(s, exp_tail(-minus_r), one) + s);
}
// exp(-y), 1 - exp(-y) and 1 + exp(-y) for y in [0, 20], of each of which the last step rounds once.
template <class L>
struct BesideOne {
  L itself, less, more;
};
template <class L>
BRAZE_INLINE BesideOne<L> beside_one(Reduced<L> reduced) {
  const L one = num(reduced.r, 1), s = power(reduced.y), t = exp_tail(reduced.r);
  return {fma(s, t, s), fma(-s, t, one - s), fma(s, t, one + s)};
}
// (1 - exp(-2|x|)) / (1 + exp(-2|x|)), and where that is near 1, as what is missing to it.
template <class L>
BRAZE_INLINE L tanh_float(L x) {
  const L t = at_most(num(x, 10), magnitude(x));
  const auto [e, less, more] = beside_one(reduce_ln2(num(x, -2) * t, magic(x, kExponent)));
  const auto near = t > num(x, 0.6);
  const L q = (near ? e : less) / more;
  return with_sign(near ? fma(num(x, -2), q, num(x, 1)) : q, x);
}
// 1 - exp(-y), where y = |x| + |x| q(|x|), with q by a fit on [0, 4] whose error weighs as the result's.
template <class L>
BRAZE_INLINE L erf_float(L x) {
  const L t = at_most(num(x, 4), magnitude(x));
  const L q = polynomial(t, -9.38705398e-6, 1.18855001e-4, -6.3734717e-4, 1.67565735e-3, -1.69494218e-4, -1.91478245e-2,
                         1.02776304e-1, 6.36619568e-1, 1.28379166e-1);
  const L y = fma(q, t, t);
  // One constant is enough: the multiple is none where the result is small.
  const auto [moved, n] = whole(y, -1.4426950408889634, magic(x, kExponent));
  return with_sign(beside_one(Reduced<L>{moved, fma(n, num(x, -0.6931471805599453), -y)}).less, x);
}
// The argument reduced in double, where the products are exact enough up to 2^27.
template <bool Cosine, class L>
BRAZE_INLINE L sine_float(L x) {
  const auto xd = convert<double>(x);
  const auto n = to_whole<kEven>(xd * num(xd, 0.63661977236758134308));
  auto r = fma(n, num(xd, -1.5707963267948966), xd);
  r = fma(n, num(xd, -6.123233995736766e-17), r);
  auto q = convert<int32_t>(n);
  if constexpr (Cosine) q = q + 1;
  const L f = convert<float>(r), s = f * f;
  L sine = polynomial(s, 2.718311493989822e-6, -1.9839334836096632e-4, 8.333329385889463e-3, -1.6666666607856405e-1);
  sine = fma(sine * s, f, f);
  L cosine = polynomial(s, 2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2, -0.5);
  cosine = fma(cosine, s, num(x, 1));
  L out = (q & 1) != 0 ? cosine : sine;
  out = bits_as<float>(bits_as<int32_t>(out) ^ ((q & 2) << 30));
  if constexpr (!Cosine) out = x == num(x, 0) ? x : out;
  const auto big = magnitude(x) > num(x, 134217728.0);  // rare
  if (__builtin_expect(any(truth(big)), 0)) {
    auto exact = [](float v) BRAZE_LAMBDA { return Cosine ? ::cosf(v) : ::sinf(v); };
    if constexpr (is_number<L>)
      return exact(x);
    else
      return each_lane<L>([&](int i) BRAZE_LAMBDA { return exact(x[i]); });
  }
  return out;
}

constexpr double kPi = 3.14159265358979323846;
template <class L>
BRAZE_INLINE L atan_float(L x) {
  const L t = magnitude(x), one = num(x, 1);
  const auto big = t > one;
  const L z = (big ? one : t) / (big ? t : one), s = z * z;
  const L p = polynomial(s, -2.42356351e-3, 1.36559233e-2, -3.61159071e-2, 6.27121404e-2, -8.66695568e-2, 1.10363966e-1,
                         -1.42789081e-1, 1.99997559e-1, -3.33333313e-1);
  const L r = fma(p * s, z, z);
  return with_sign(big ? num(x, kPi / 2) - r : r, x);
}
// asin(|x|) for |x| <= 1/2, else asin(sqrt((1 - |x|) / 2)) = acos(|x|) / 2.
template <class L>
BRAZE_INLINE L half_angle(L x) {
  const L t = magnitude(x);
  const auto big = t > num(x, 0.5);
  const L s = big ? fma(t, num(x, -0.5), num(x, 0.5)) : t * t, z = big ? square_root(s) : t;
  const L p = polynomial(s, 3.81963551e-2, 2.64993384e-2, 4.50099073e-2, 7.49881342e-2, 1.66666731e-1);
  return fma(p * s, z, z);
}
template <class L>
BRAZE_INLINE L asin_float(L x) {
  const L r = half_angle(x);
  return with_sign(magnitude(x) > num(x, 0.5) ? fma(r, num(x, -2), num(x, kPi / 2)) : r, x);
}
template <class L>
BRAZE_INLINE L acos_float(L x) {
  const L r = half_angle(x), twice = r + r;
  const L far = x < num(x, 0) ? num(x, kPi) - twice : twice;
  return magnitude(x) > num(x, 0.5) ? far : num(x, kPi / 2) - with_sign(r, x);
}

// --- of leaves of either
// asinh and acosh, whose squares the library lets overflow: from here on they are log(2 |x|).
template <bool Even, class L>
BRAZE_INLINE L area_function(L x) {
  constexpr bool wide = element_bytes<L> == 8;
  const L t = magnitude(x);
  const auto big = t > num(x, wide ? 1e100 : 1e15);
  const L near = big ? num(x, 1) : x;
  L plain, large;
  if constexpr (Even)
    plain = library(Lib_acosh(), near);
  else
    plain = library(Lib_asinh(), near);
  if constexpr (wide)
    large = library(Lib_log(), t);
  else
    large = log_float(t);
  large = large + num(x, 0.6931471805599453);
  if constexpr (Even)
    large = x < num(x, 0) ? num(x, __builtin_nan("")) : large;
  else
    large = with_sign(large, x);
  return big ? large : plain;
}
// sinh and cosh of doubles: the library's vectors overflow before the result does.
template <bool Even, class L>
BRAZE_INLINE L wide_hyperbolic(L x) {
  L plain;
  if constexpr (Even)
    plain = library(Lib_cosh(), x);
  else
    plain = library(Lib_sinh(), x);
  if constexpr (!is_number<L>) {
    const L t = magnitude(x);
    const auto far = t > num(x, 709.0);
    if (__builtin_expect(any(far), 0)) {
      const L root = library(Lib_exp(), t * num(x, 0.5)), large = root * num(x, 0.5) * root;
      plain = far ? (Even ? large : with_sign(large, x)) : plain;
    }
  }
  return plain;
}

// --- of values
#define BRAZE_FUNCTION(name, of_float, of_double)                           \
  template <class V>                                                        \
  BRAZE_INLINE auto name(const V& v) {                                      \
    if constexpr (sizeof(Element<V>) == 4)                                  \
      return map<float>([](auto x) BRAZE_LAMBDA { return of_float; }, v);   \
    else                                                                    \
      return map<double>([](auto x) BRAZE_LAMBDA { return of_double; }, v); \
  }
BRAZE_FUNCTION(exp, exp_float(x), library(Lib_exp(), x))
BRAZE_FUNCTION(exp2, exp2_float(x), library(Lib_exp2(), x))
BRAZE_FUNCTION(expm1, expm1_float(x), library(Lib_expm1(), x))
BRAZE_FUNCTION(log, log_float(x), library(Lib_log(), x))
BRAZE_FUNCTION(log2, log2_float(x), library(Lib_log2(), x))
BRAZE_FUNCTION(log10, log10_float(x), library(Lib_log10(), x))
BRAZE_FUNCTION(log1p, log1p_float(x), library(Lib_log1p(), x))
BRAZE_FUNCTION(sin, sine_float<false>(x), library(Lib_sin(), x))
BRAZE_FUNCTION(cos, sine_float<true>(x), library(Lib_cos(), x))
BRAZE_FUNCTION(tan, library(Lib_tan(), x), library(Lib_tan(), x))
BRAZE_FUNCTION(asin, asin_float(x), library(Lib_asin(), x))
BRAZE_FUNCTION(acos, acos_float(x), library(Lib_acos(), x))
BRAZE_FUNCTION(atan, atan_float(x), library(Lib_atan(), x))
BRAZE_FUNCTION(sinh, sinh_float(x), wide_hyperbolic<false>(x))
BRAZE_FUNCTION(cosh, cosh_float(x), wide_hyperbolic<true>(x))
BRAZE_FUNCTION(tanh, tanh_float(x), library(Lib_tanh(), x))
BRAZE_FUNCTION(asinh, area_function<false>(x), area_function<false>(x))
BRAZE_FUNCTION(acosh, area_function<true>(x), area_function<true>(x))
BRAZE_FUNCTION(atanh, library(Lib_atanh(), x), library(Lib_atanh(), x))
BRAZE_FUNCTION(erf, erf_float(x), library(Lib_erf(), x))
BRAZE_FUNCTION(erfc, library(Lib_erfc(), x), library(Lib_erfc(), x))
BRAZE_FUNCTION(sigmoid, sigmoid_float(x), num(x, 1) / (library(Lib_exp(), -x) + num(x, 1)))
#undef BRAZE_FUNCTION
template <class X, class Y>
BRAZE_INLINE auto pow(const X& v, const Y& w) {
  return map<Element<X>>([](auto x, auto y) BRAZE_LAMBDA { return library(Lib_pow(), x, y); }, v, w);
}
template <class X, class Y>
BRAZE_INLINE auto atan2(const X& v, const Y& w) {
  return map<Element<X>>([](auto x, auto y) BRAZE_LAMBDA { return library(Lib_atan2(), x, y); }, v, w);
}

}  // namespace braze
