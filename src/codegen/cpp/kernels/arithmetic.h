// Arithmetic of the loop programs: integers wrap and never trap, floats are IEEE without contraction, NaN goes through
// maxima and minima.
#pragma once
#include "convert.h"

extern "C" {
double fmod(double, double) noexcept;
float fmodf(float, float) noexcept;
}

namespace braze {

// --- leaves of floats
// f of every lane, where there is no instruction for all.
template <class L, class F>
BRAZE_INLINE L each_lane(F f) {
  L out{};
  for (int i = 0; i < kLanes; ++i) out[i] = f(i);
  return out;
}

// f of doubles that are more than a register holds, piece by piece.
#if defined(__AVX512F__)
typedef double DoublePiece __attribute__((vector_size(64)));
#else
typedef double DoublePiece __attribute__((vector_size(32)));
#endif
template <class L>
constexpr bool has_pieces = element_bytes<L> == 8 && sizeof(L) == 2 * sizeof(DoublePiece);
template <class L, class F, class... M>
BRAZE_INLINE L in_pieces(F f, L x, M... more) {
  struct Two {
    DoublePiece low, high;
  };
  auto two = [](L v) BRAZE_LAMBDA { return __builtin_bit_cast(Two, v); };
  return __builtin_bit_cast(L, Two{f(two(x).low, two(more).low...), f(two(x).high, two(more).high...)});
}

template <class L>
BRAZE_INLINE L fma(L x, L y, L z) {
  if constexpr (same<L, float>)
    return __builtin_fmaf(x, y, z);
  else if constexpr (same<L, double>)
    return __builtin_fma(x, y, z);
#if defined(__FMA__)
  else if constexpr (element_bytes<L> == 4 && sizeof(L) == 16)
    return __builtin_ia32_vfmaddps(x, y, z);
  else if constexpr (element_bytes<L> == 4 && sizeof(L) == 32)
    return __builtin_ia32_vfmaddps256(x, y, z);
  else if constexpr (element_bytes<L> == 8 && sizeof(L) == 16)
    return __builtin_ia32_vfmaddpd(x, y, z);
  else if constexpr (element_bytes<L> == 8 && sizeof(L) == 32)
    return __builtin_ia32_vfmaddpd256(x, y, z);
#if defined(__AVX512F__)
  else if constexpr (element_bytes<L> == 4 && sizeof(L) == 64)
    return __builtin_ia32_vfmaddps512_mask(x, y, z, -1, 4);
  else if constexpr (element_bytes<L> == 8 && sizeof(L) == 64)
    return __builtin_ia32_vfmaddpd512_mask(x, y, z, -1, 4);
  else if constexpr (has_pieces<L>)
    return in_pieces(
        [](auto a, auto b, auto c) BRAZE_LAMBDA { return __builtin_ia32_vfmaddpd512_mask(a, b, c, -1, 4); }, x, y, z);
#else
  else if constexpr (has_pieces<L>)
    return in_pieces([](auto a, auto b, auto c) BRAZE_LAMBDA { return __builtin_ia32_vfmaddpd256(a, b, c); }, x, y, z);
#endif
#endif
  else
    return each_lane<L>([&](int i) BRAZE_LAMBDA { return fma(x[i], y[i], z[i]); });
}

// What rounds to a whole number; Mode is that of the instruction.
enum Rounding { kEven = 8, kDown = 9, kUp = 10, kToZero = 11 };
template <Rounding Mode, class L>
BRAZE_INLINE L to_whole(L x) {
  if constexpr (same<L, float>) {
    return Mode == kEven   ? __builtin_roundevenf(x)
           : Mode == kDown ? __builtin_floorf(x)
           : Mode == kUp   ? __builtin_ceilf(x)
                           : __builtin_truncf(x);
  } else if constexpr (same<L, double>) {
    return Mode == kEven   ? __builtin_roundeven(x)
           : Mode == kDown ? __builtin_floor(x)
           : Mode == kUp   ? __builtin_ceil(x)
                           : __builtin_trunc(x);
#if defined(__AVX2__)
  } else if constexpr (element_bytes<L> == 4 && sizeof(L) == 16) {
    return __builtin_ia32_roundps(x, Mode);
  } else if constexpr (element_bytes<L> == 4 && sizeof(L) == 32) {
    return __builtin_ia32_roundps256(x, Mode);
  } else if constexpr (element_bytes<L> == 8 && sizeof(L) == 16) {
    return __builtin_ia32_roundpd(x, Mode);
  } else if constexpr (element_bytes<L> == 8 && sizeof(L) == 32) {
    return __builtin_ia32_roundpd256(x, Mode);
#if defined(__AVX512F__)
  } else if constexpr (element_bytes<L> == 4 && sizeof(L) == 64) {
    return __builtin_ia32_rndscaleps_mask(x, Mode, x, -1, 4);
  } else if constexpr (element_bytes<L> == 8 && sizeof(L) == 64) {
    return __builtin_ia32_rndscalepd_mask(x, Mode, x, -1, 4);
  } else if constexpr (has_pieces<L>) {
    return in_pieces([](auto a) BRAZE_LAMBDA { return __builtin_ia32_rndscalepd_mask(a, Mode, a, -1, 4); }, x);
#else
  } else if constexpr (has_pieces<L>) {
    return in_pieces([](auto a) BRAZE_LAMBDA { return __builtin_ia32_roundpd256(a, Mode); }, x);
#endif
#endif
  } else {
    return each_lane<L>([&](int i) BRAZE_LAMBDA { return to_whole<Mode>(x[i]); });
  }
}

template <class L>
BRAZE_INLINE L square_root(L x) {
  if constexpr (same<L, float>)
    return __builtin_sqrtf(x);
  else if constexpr (same<L, double>)
    return __builtin_sqrt(x);
#if defined(__AVX2__) && !defined(__clang__)
  else if constexpr (element_bytes<L> == 4 && sizeof(L) == 16)
    return __builtin_ia32_sqrtps(x);
  else if constexpr (element_bytes<L> == 4 && sizeof(L) == 32)
    return __builtin_ia32_sqrtps256(x);
  else if constexpr (element_bytes<L> == 8 && sizeof(L) == 16)
    return __builtin_ia32_sqrtpd(x);
  else if constexpr (element_bytes<L> == 8 && sizeof(L) == 32)
    return __builtin_ia32_sqrtpd256(x);
#if defined(__AVX512F__)
  else if constexpr (element_bytes<L> == 4 && sizeof(L) == 64)
    return __builtin_ia32_sqrtps512_mask(x, x, -1, 4);
  else if constexpr (element_bytes<L> == 8 && sizeof(L) == 64)
    return __builtin_ia32_sqrtpd512_mask(x, x, -1, 4);
#endif
#endif
  else
    return each_lane<L>([&](int i) BRAZE_LAMBDA { return square_root(x[i]); });
}

template <class L>
constexpr uint64_t sign_bit = uint64_t(1) << (8 * element_bytes<L> - 1);
template <class L>
BRAZE_INLINE auto raw(L x) {  // the bits of a float
  return bits_as<Unsigned<element_bytes<L>>>(x);
}
template <class L, class U>
BRAZE_INLINE L from_raw(U bits) {
  if constexpr (element_bytes<L> == 8)
    return bits_as<double>(bits);
  else
    return bits_as<float>(bits);
}
template <class L>
BRAZE_INLINE L magnitude(L x) {
  return from_raw<L>(raw(x) & ~static_cast<Unsigned<element_bytes<L>>>(sign_bit<L>));
}
template <class L>
BRAZE_INLINE L with_sign(L x, L sign) {
  constexpr auto bit = static_cast<Unsigned<element_bytes<L>>>(sign_bit<L>);
  return from_raw<L>((raw(x) & ~bit) | (raw(sign) & bit));
}
// The second operand where either is NaN.
template <class L>
BRAZE_INLINE L at_most(L bound, L x) {
  return bound < x ? bound : x;
}
template <class L>
BRAZE_INLINE L at_least(L bound, L x) {
  return bound > x ? bound : x;
}
// The larger of two, the smaller of two: NaN if one is NaN, of equals the first.
template <class L>
BRAZE_INLINE L larger(L x, L y) {
  const L r = x < y ? y : x;
  if constexpr (is_float<Number<L>>)
    return y != y ? y : r;
  else
    return r;
}
template <class L>
BRAZE_INLINE L smaller(L x, L y) {
  const L r = y < x ? y : x;
  if constexpr (is_float<Number<L>>)
    return y != y ? y : r;
  else
    return r;
}
// C's remainder, its quotient rounded to zero.
template <class L>
BRAZE_INLINE L remainder_to_zero(L x, L y) {
  if constexpr (same<L, float>) {
    return ::fmodf(x, y);
  } else if constexpr (same<L, double>) {
    return ::fmod(x, y);
  } else {
    // Of a quotient of few enough bits the whole part is right or one too great, and what is left has no rounding
    // error. NaN comes of itself where the quotient has no whole part.
    const L n = magnitude(x), d = magnitude(y), zero{}, quotient = n / d, whole = to_whole<kToZero>(quotient);
    L rest = fma(-whole, d, n);
    rest = rest < zero ? rest + d : rest;
    rest = whole == zero ? n : rest;
    const auto far =
        (quotient >= num(x, element_bytes<L> == 8 ? 0x1p51 : 0x1p22)) & (n < num(x, __builtin_inf())) & (d > zero);
    if (__builtin_expect(any(far), 0))
      return each_lane<L>([&](int i) BRAZE_LAMBDA { return remainder_to_zero(x[i], y[i]); });
    return with_sign(rest, x);
  }
}
template <class L>
BRAZE_INLINE L floor_remainder(L x, L y) {
  const L rest = remainder_to_zero(x, y), zero{};
  return (rest != zero) & ((y < zero) ^ (rest < zero)) ? rest + y : rest;
}
template <class L>
BRAZE_INLINE L floor_quotient(L x, L y) {
  const L rest = remainder_to_zero(x, y), zero{}, one = num(x, 1), plain = x / y;
  L quotient = (x - rest) / y;
  quotient = (rest != zero) & ((y < zero) ^ (rest < zero)) ? quotient - one : quotient;
  L down = to_whole<kDown>(quotient);
  down = quotient - down > num(x, 0.5) ? down + one : down;
  const L r = quotient != zero ? down : with_sign(zero, plain);
  return y == zero ? plain : r;
}

// --- leaves of integers
// Quotients that never trap: a zero divisor counts as 1, and dividing by -1 is negation.
template <class L>
BRAZE_INLINE L whole_quotient(L x, L y) {
  const L one = num(x, 1), zero{};
  const L d = y == zero ? one : y;
  if constexpr (!is_signed<Number<L>>) {
    return x / d;
  } else {
    const L minus_one = num(x, -1), safe = d == minus_one ? one : d, negative = zero - x;
    return d == minus_one ? negative : static_cast<L>(x / safe);
  }
}
template <class L>
BRAZE_INLINE L whole_rest(L x, L y) {
  const L zero{}, d = y == zero ? num(x, 1) : y;
  return x - whole_quotient(x, y) * d;
}
template <class L>
BRAZE_INLINE L whole_floor_quotient(L x, L y) {
  const L q = whole_quotient(x, y), rest = whole_rest(x, y), zero{}, one = num(x, 1);
  if constexpr (!is_signed<Number<L>>)
    return q;
  else
    return (rest != zero) & (static_cast<L>(rest ^ y) < zero) ? static_cast<L>(q - one) : q;
}
template <class L>
BRAZE_INLINE L whole_floor_rest(L x, L y) {
  const L rest = whole_rest(x, y), zero{};
  if constexpr (!is_signed<Number<L>>)
    return rest;
  else
    return (rest != zero) & (static_cast<L>(rest ^ y) < zero) ? static_cast<L>(rest + y) : rest;
}
// Shifts by any number of bits: those that are shifted out are gone.
template <class L>
BRAZE_INLINE L shifted_left(L x, L n) {
  using U = Unsigned<element_bytes<L>>;
  const auto bits = bits_as<U>(n);
  const L zero{};
  const auto outside = bits >= num(bits, 8 * element_bytes<L>);
  const L amount = outside ? zero : n;
  return outside ? zero : static_cast<L>(x << amount);
}
template <class L>
BRAZE_INLINE L shifted_right(L x, L n) {
  using U = Unsigned<element_bytes<L>>;
  const auto bits = bits_as<U>(n);
  const L zero{};
  const auto outside = bits >= num(bits, 8 * element_bytes<L>);
  if constexpr (is_signed<Number<L>>) {
    const L amount = outside ? num(x, 8 * element_bytes<L> - 1) : n;
    return x >> amount;
  } else {
    const L amount = outside ? zero : n;
    return outside ? zero : static_cast<L>(x >> amount);
  }
}
BRAZE_INLINE int64_t integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, b = static_cast<uint64_t>(base);
  for (auto e = static_cast<uint64_t>(exponent); e; e >>= 1, b *= b)
    if (e & 1) result *= b;
  return static_cast<int64_t>(result);
}

// --- values, of one type each
#define BRAZE_UNARY(name, expression)                                                                    \
  template <class X>                                                                                     \
  BRAZE_INLINE auto name(const X& v) {                                                                   \
    return map<Element<X>>([](auto x) BRAZE_LAMBDA { return static_cast<decltype(x)>(expression); }, v); \
  }
#define BRAZE_BINARY(name, expression)                                                                              \
  template <class X, class Y>                                                                                       \
  BRAZE_INLINE auto name(const X& v, const Y& w) {                                                                  \
    return map<Element<X>>([](auto x, auto y) BRAZE_LAMBDA { return static_cast<decltype(x)>(expression); }, v, w); \
  }
BRAZE_BINARY(add, x + y)
BRAZE_BINARY(sub, x - y)
BRAZE_BINARY(mul, x* y)
BRAZE_BINARY(div, x / y)  // of floats
BRAZE_BINARY(max, larger(x, y))
BRAZE_BINARY(min, smaller(x, y))
BRAZE_BINARY(fmod, remainder_to_zero(x, y))
BRAZE_BINARY(remainder, floor_remainder(x, y))
BRAZE_BINARY(floor_div, floor_quotient(x, y))
BRAZE_BINARY(copysign, with_sign(x, y))
BRAZE_BINARY(int_div, whole_quotient(x, y))
BRAZE_BINARY(int_mod, whole_rest(x, y))
BRAZE_BINARY(int_floor_div, whole_floor_quotient(x, y))
BRAZE_BINARY(int_remainder, whole_floor_rest(x, y))
BRAZE_BINARY(shift_left, shifted_left(x, y))
BRAZE_BINARY(shift_right, shifted_right(x, y))
BRAZE_UNARY(neg, -x)
BRAZE_UNARY(abs, magnitude(x))
BRAZE_UNARY(int_abs, is_signed<Number<decltype(x)>>&& x < decltype(x){} ? static_cast<decltype(x)>(-x) : x)
BRAZE_UNARY(floor, to_whole<kDown>(x))
BRAZE_UNARY(ceil, to_whole<kUp>(x))
BRAZE_UNARY(trunc, to_whole<kToZero>(x))
BRAZE_UNARY(round, to_whole<kEven>(x))
BRAZE_UNARY(sqrt, square_root(x))
BRAZE_UNARY(rsqrt, num(x, 1) / square_root(x))
BRAZE_UNARY(recip, num(x, 1) / x)
// 0 for NaN and for both zeros.
template <class L>
BRAZE_INLINE L sign_leaf(L x) {
  const L zero{}, up = x > zero ? num(x, 1) : zero;
  if constexpr (is_signed<Number<L>>)
    return x < zero ? num(x, -1) : up;
  else
    return up;
}
BRAZE_UNARY(sign, sign_leaf(x))
#undef BRAZE_UNARY
#undef BRAZE_BINARY

template <class X, class Y, class Z>
BRAZE_INLINE auto multiply_add(const X& x, const Y& y, const Z& z) {  // one rounding, of floats
  return map<Element<X>>(
      [](auto a, auto b, auto c) BRAZE_LAMBDA {
        if constexpr (is_float<Number<decltype(a)>>)
          return fma(a, b, c);
        else
          return static_cast<decltype(a)>(a * b + c);
      },
      x, y, z);
}
template <class X>
BRAZE_INLINE auto is_nan(const X& v) {
  return map<bool>([](auto x) BRAZE_LAMBDA { return truth(x != x); }, v);
}
template <class X>
BRAZE_INLINE auto is_inf(const X& v) {
  return map<bool>([](auto x) BRAZE_LAMBDA { return truth(magnitude(x) == num(x, __builtin_inf())); }, v);
}
template <class X, class Y>
BRAZE_INLINE auto int_pow(const X& x, const Y& y) {
  constexpr int n = lanes_of<X, Y>;
  return make<Element<X>>(Lanes<n>(), [&](int lane) BRAZE_LAMBDA {
    return static_cast<Element<X>>(integer_power(lane_of(x, lane), lane_of(y, lane)));
  });
}

}  // namespace braze
