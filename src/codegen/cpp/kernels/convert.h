// Conversions: between what memory holds and what registers compute with, and between types of numbers. A half and a
// bfloat16 are computed as float and rounded to nearest even; floats of a byte are kept as their bits.
#pragma once
#include "vectors.h"

namespace braze {

// --- leaves
template <class L>
BRAZE_INLINE auto bfloat16_from(L bits) {  // uint16_t
  return bits_as<float>(convert<uint32_t>(bits) << 16);
}
template <class L>
BRAZE_INLINE auto bfloat16_to(L x) {
  auto i = bits_as<uint32_t>(x);
  auto rounded = (i + (((i >> 16) & 1) + 0x7fff)) >> 16;
  return convert<uint16_t>(x != x ? num(i, 0x7fc0) : rounded);
}

#if defined(__F16C__)
template <class To, class From>
BRAZE_INLINE To reshape(From x) {  // the first lanes of x; those it does not have are 0
  To to{};
  __builtin_memcpy(&to, &x, sizeof(To) < sizeof(From) ? sizeof(To) : sizeof(From));
  return to;
}
typedef short Words8 __attribute__((vector_size(16)));
typedef float Floats4 __attribute__((vector_size(16)));
typedef float Floats8 __attribute__((vector_size(32)));
#if defined(__AVX512F__)
typedef short Words16 __attribute__((vector_size(32)));
typedef int Ints16 __attribute__((vector_size(64)));
typedef float Floats16 __attribute__((vector_size(64)));
#endif
#endif
template <class L>
BRAZE_INLINE auto half_from(L bits) {  // uint16_t
#if defined(__F16C__)
  if constexpr (is_number<L>) return __builtin_ia32_vcvtph2ps(Words8{static_cast<short>(bits)})[0];
#if defined(__AVX512F__)
  else if constexpr (kLanes == 16)
    return __builtin_ia32_vcvtph2ps512_mask(__builtin_bit_cast(Words16, bits), Floats16{}, -1, 4);
#endif
  else if constexpr (kLanes == 8)
    return __builtin_ia32_vcvtph2ps256(__builtin_bit_cast(Words8, bits));
  else
    return reshape<Leaf<float>>(__builtin_ia32_vcvtph2ps(reshape<Words8>(bits)));
#else
  if constexpr (is_number<L>) {
    return static_cast<float>(__builtin_bit_cast(_Float16, bits));
  } else {
    Leaf<float> x{};
    for (int i = 0; i < kLanes; ++i) x[i] = half_from(bits[i]);
    return x;
  }
#endif
}
template <class L>
BRAZE_INLINE auto half_to(L x) {
#if defined(__F16C__)
  if constexpr (is_number<L>) return static_cast<uint16_t>(__builtin_ia32_vcvtps2ph(Floats4{x}, 0)[0]);
#if defined(__AVX512F__)
  else if constexpr (kLanes == 16)
    return __builtin_bit_cast(Leaf<uint16_t>, __builtin_ia32_vcvtps2ph512_mask(x, 0, Words16{}, -1));
#endif
  else if constexpr (kLanes == 8)
    return __builtin_bit_cast(Leaf<uint16_t>, __builtin_ia32_vcvtps2ph256(x, 0));
  else
    return reshape<Leaf<uint16_t>>(__builtin_ia32_vcvtps2ph(reshape<Floats4>(x), 0));
#else
  if constexpr (is_number<L>) {
    return __builtin_bit_cast(uint16_t, static_cast<_Float16>(x));
  } else {
    Leaf<uint16_t> bits{};
    for (int i = 0; i < kLanes; ++i) bits[i] = half_to(x[i]);
    return bits;
  }
#endif
}

// How the bits of a float of a byte are made up. Ieee: infinities, and NaNs under the highest exponent. Finite: no
// infinities, what is out of range is the greatest number. OneZero: the bits of -0 are the one NaN. Exponent: powers of
// two without sign and zero.
enum class Bits8 { Ieee, Finite, OneZero, Exponent };
template <Bits8 Kind, int Mantissa, int Bias>
struct Float8 {
  static constexpr Bits8 kind = Kind;
  static constexpr int mantissa = Mantissa, bias = Bias;
  static constexpr uint32_t least_normal = uint32_t(128 - Bias) << 23;
  static constexpr uint32_t rounder = uint32_t(128 - Bias - Mantissa + 23) << 23;
  // From here on all is out of range.
  static constexpr uint32_t limit = Kind == Bits8::Ieee     ? uint32_t(128 + Bias) << 23
                                    : Kind == Bits8::Finite ? (uint32_t(127 + Bias + 2) << 23) - (3u << (22 - Mantissa))
                                    : Kind == Bits8::OneZero ? uint32_t(127 + (1 << (7 - Mantissa)) - Bias) << 23
                                                             : 0x7f800000;
};
using e4m3fn = Float8<Bits8::Finite, 3, 7>;
using e5m2 = Float8<Bits8::Ieee, 2, 15>;
using e4m3fnuz = Float8<Bits8::OneZero, 3, 8>;
using e5m2fnuz = Float8<Bits8::OneZero, 2, 16>;
using e8m0fnu = Float8<Bits8::Exponent, 0, 127>;

constexpr float power_of_two(int n) { return n < 0 ? 0.5f * power_of_two(n + 1) : n ? 2 * power_of_two(n - 1) : 1; }

template <class F, class L>
BRAZE_INLINE auto float8_from(L bits) {  // uint8_t
  auto u = convert<uint32_t>(bits);
  auto word = [&](uint32_t n) BRAZE_LAMBDA { return num(u, n); };
  if constexpr (F::kind == Bits8::Exponent) {
    auto r = u == 0 ? word(0x400000) : u << 23;
    return bits_as<float>(u == 255 ? word(0x7fc00000) : r);
  } else {
    auto low = u & 0x7f;
    auto normal = (low << (23 - F::mantissa)) + (uint32_t(127 - F::bias) << 23);
    if constexpr (F::kind == Bits8::Ieee) normal = low >= (31u << F::mantissa) ? normal + (112u << 23) : normal;
    auto small = bits_as<uint32_t>(convert<float>(low) * power_of_two(1 - F::bias - F::mantissa));
    auto r = low < (1u << F::mantissa) ? small : normal;
    r = r | ((u & 0x80) << 24);
    if constexpr (F::kind == Bits8::Finite) r = low == 0x7f ? r | 0x7fc00000 : r;
    if constexpr (F::kind == Bits8::OneZero) r = u == 0x80 ? word(0x7fc00000) : r;
    return bits_as<float>(r);
  }
}
template <class F, class L>
BRAZE_INLINE auto float8_to(L x) {
  auto all = bits_as<uint32_t>(x);
  auto magnitude = all & 0x7fffffff;
  auto word = [&](uint32_t n) BRAZE_LAMBDA { return num(all, n); };
  if constexpr (F::kind == Bits8::Exponent) {
    auto r = (magnitude + (magnitude < 0x800000 ? word(0x3fffff) : word(0x400000))) >> 23;
    return convert<uint8_t>(magnitude >= 0x7f800000 ? word(255) : r);
  } else {
    constexpr int dropped = 23 - F::mantissa;
    constexpr uint32_t rebias = (uint32_t(1) << (dropped - 1)) - 1 - (uint32_t(127 - F::bias) << 23);
    auto r = (magnitude + ((magnitude >> dropped) & 1) + rebias) >> dropped;
    auto small = bits_as<uint32_t>(bits_as<float>(magnitude) + bits_as<float>(word(F::rounder))) - F::rounder;
    r = magnitude < F::least_normal ? small : r;
    auto sign = (all >> 24) & 0x80;
    auto beyond = magnitude >= F::limit;
    if constexpr (F::kind == Bits8::OneZero) {
      r = r == 0 ? r : r | sign;
      r = beyond ? word(0x80) : r;
    } else {
      auto last = magnitude > 0x7f800000 ? word(0x7f) : word(F::kind == Bits8::Ieee ? 0x7c : 0x7e);
      r = (beyond ? last : r) | sign;
    }
    return convert<uint8_t>(r);
  }
}

// The integers that memory holds a type as.
template <class T>
struct KeptAs {
  using type = T;
};
template <>
struct KeptAs<boolean> {
  using type = uint8_t;
};
template <>
struct KeptAs<half> {
  using type = uint16_t;
};
template <>
struct KeptAs<bfloat16> {
  using type = uint16_t;
};
template <class T>
using Kept = typename KeptAs<T>::type;
template <class T>
constexpr bool is_kept_otherwise = same<T, boolean> || same<T, half> || same<T, bfloat16>;

template <class T, class L>
BRAZE_INLINE auto leaf_from_memory(L kept) {
  if constexpr (same<T, boolean>)
    return truth(kept != 0);
  else if constexpr (same<T, half>)
    return half_from(kept);
  else if constexpr (same<T, bfloat16>)
    return bfloat16_from(kept);
  else
    return kept;
}
template <class T, class L>
BRAZE_INLINE auto leaf_to_memory(L x) {
  if constexpr (same<T, boolean>)
    return convert<uint8_t>(x & 1);
  else if constexpr (same<T, half>)
    return half_to(x);
  else if constexpr (same<T, bfloat16>)
    return bfloat16_to(x);
  else
    return x;
}
template <class T>
BRAZE_INLINE auto from_memory(T stored) {
  if constexpr (same<T, boolean>)
    return static_cast<uint8_t>(stored) != 0;
  else if constexpr (is_kept_otherwise<T>)
    return leaf_from_memory<T>(static_cast<uint16_t>(stored));
  else
    return stored;
}
template <class T>
using InRegister = decltype(from_memory(T{}));
template <class T, class V>
BRAZE_INLINE T to_memory(V x) {
  if constexpr (same<T, boolean>)
    return static_cast<T>(static_cast<uint8_t>(x));
  else if constexpr (is_kept_otherwise<T>)
    return static_cast<T>(leaf_to_memory<T>(x));
  else
    return x;
}

// --- values
// To another type, as C++ converts. Out of range, a float becomes what the machine's conversion gives; to narrow
// integers it goes by way of int32_t.
template <class T, class V>
BRAZE_INLINE auto cast(const V& v) {
  using From = Element<V>;
  if constexpr (same<T, From>) {
    return v;
  } else if constexpr (same<T, bool>) {
    return map<bool>([](auto x) BRAZE_LAMBDA { return truth(x != 0); }, v);
  } else if constexpr (same<From, bool>) {
    return map<T>([](auto x) BRAZE_LAMBDA { return convert<T>(x & 1); }, v);
  } else if constexpr (is_float<From> && !is_float<T> && sizeof(T) < 4) {
    return map<T>([](auto x) BRAZE_LAMBDA { return convert<T>(convert<int32_t>(x)); }, v);
  } else {
    return map<T>([](auto x) BRAZE_LAMBDA { return convert<T>(x); }, v);
  }
}
// Floats rounded to what the type can hold.
template <class T, class V>
BRAZE_INLINE auto rounded(const V& v) {
  return map<float>([](auto x) BRAZE_LAMBDA { return leaf_from_memory<T>(leaf_to_memory<T>(x)); }, v);
}
template <class F, class V>
BRAZE_INLINE auto from_float8(const V& v) {
  return map<float>([](auto x) BRAZE_LAMBDA { return float8_from<F>(x); }, v);
}
template <class F, class V>
BRAZE_INLINE auto to_float8(const V& v) {
  return map<uint8_t>([](auto x) BRAZE_LAMBDA { return float8_to<F>(x); }, v);
}
// The same bits as a number of another type; `To` and `From` are types of memory.
template <class To, class From, class V>
BRAZE_INLINE auto bitcast(const V& v) {
  return map<InRegister<To>>(
      [](auto x) BRAZE_LAMBDA { return leaf_from_memory<To>(bits_as<Kept<To>>(leaf_to_memory<From>(x))); }, v);
}

}  // namespace braze
