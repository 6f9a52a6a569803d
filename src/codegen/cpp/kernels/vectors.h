// What the text of a C++ kernel is written in: numbers of so many lanes, and how memory becomes them.
//
// A value is a number, the same for all points in flight, or a Vec, one number for each. What is done to one lane is
// done to all, and functions take both, in any mixture. A Vec is made of register vectors of kLanes lanes (vector
// extensions of GCC and Clang); `Leaf` is one of those, and what is called a leaf below is a number or a Leaf.
#pragma once
#include <stdint.h>

#define BRAZE_INLINE inline __attribute__((always_inline))
#define BRAZE_LAMBDA __attribute__((always_inline))

namespace braze {

constexpr int kLanes = BRAZE_LANES;           // of a register vector, chosen for each kernel
constexpr int kMaskBytes = BRAZE_MASK_BYTES;  // of a lane of a truth value
constexpr int kRegisterBytes = kLanes * kMaskBytes;

// Types in memory that are others in registers. A bool may be any byte: all but 0 are true.
enum class boolean : uint8_t {};
enum class half : uint16_t {};
enum class bfloat16 : uint16_t {};

template <int Bytes>
struct IntOf;
template <>
struct IntOf<1> {
  using type = int8_t;
  using no_sign = uint8_t;
};
template <>
struct IntOf<2> {
  using type = int16_t;
  using no_sign = uint16_t;
};
template <>
struct IntOf<4> {
  using type = int32_t;
  using no_sign = uint32_t;
};
template <>
struct IntOf<8> {
  using type = int64_t;
  using no_sign = uint64_t;
};
template <int Bytes>
using Int = typename IntOf<Bytes>::type;
template <int Bytes>
using Unsigned = typename IntOf<Bytes>::no_sign;

template <class T>
struct LeafOf {
  typedef T type __attribute__((vector_size(sizeof(T) * kLanes)));
};
template <>
struct LeafOf<bool> {  // all bits of a lane, or none
  typedef Int<kMaskBytes> type __attribute__((vector_size(kMaskBytes * kLanes)));
};
template <class T>
using Leaf = typename LeafOf<T>::type;

template <class T, int N>
struct Vec {
  Leaf<T> part[N / kLanes];
};
// So many lanes, as an argument.
template <int N>
struct Lanes {
  static constexpr int count = N;
};

// The element and the lanes of a value, and of a leaf.
template <class T>
struct Shape {
  using Element = T;
  static constexpr int lanes = 1;
};
template <class T, int N>
struct Shape<Vec<T, N>> {
  using Element = T;
  static constexpr int lanes = N;
};
template <class V>
using Element = typename Shape<V>::Element;
template <class... V>
constexpr int lanes_of = [] {
  int most = 1;
  ((most = Shape<V>::lanes > most ? Shape<V>::lanes : most), ...);
  return most;
}();
template <class T, int N>
struct ValueOf {
  using type = Vec<T, N>;
};
template <class T>
struct ValueOf<T, 1> {
  using type = T;
};
template <class T, int N>
using Value = typename ValueOf<T, N>::type;

template <class T, class U>
constexpr bool same = false;
template <class T>
constexpr bool same<T, T> = true;
template <class L>
constexpr bool is_number =
    same<L, float> || same<L, double> || same<L, bool> || same<L, int8_t> || same<L, uint8_t> || same<L, int16_t> ||
    same<L, uint16_t> || same<L, int32_t> || same<L, uint32_t> || same<L, int64_t> || same<L, uint64_t>;
template <class L>
constexpr int element_bytes = is_number<L> ? sizeof(L) : sizeof(L) / kLanes;
template <class L>
auto number_of() {
  if constexpr (is_number<L>)
    return L{};
  else
    return L{}[0];
}
template <class L>
using Number = decltype(number_of<L>());  // of a leaf's lane
template <class T>
constexpr bool is_float = same<T, float> || same<T, double>;
template <class T>
constexpr bool is_signed = is_float<T> || T(-1) < T(0);

template <int... I>
struct Sequence {};
#if defined(__clang__)
template <class, int... I>
using SequenceOf = Sequence<I...>;
template <int N>
using Count = __make_integer_seq<SequenceOf, int, N>;
#else
template <int N>
using Count = Sequence<__integer_pack(N)...>;
#endif

// --- leaves
template <class T, int... I>
BRAZE_INLINE Leaf<T> splat_lanes(T x, Sequence<I...>) {
  return Leaf<T>{((void)I, x)...};
}
template <class T>
BRAZE_INLINE Leaf<T> splat(T x) {
  if constexpr (same<T, bool>)
    return splat_lanes<Int<kMaskBytes>>(-Int<kMaskBytes>(x), Count<kLanes>()) != 0;
  else
    return splat_lanes<T>(x, Count<kLanes>());
}
template <int I, class V>
BRAZE_INLINE auto part_of(const V& v) {
  if constexpr (Shape<V>::lanes > 1)
    return v.part[I];
  else
    return splat<V>(v);
}
// A leaf of other numbers, by C's conversion.
template <class T, class L>
BRAZE_INLINE auto convert(L x) {
  if constexpr (is_number<L>)
    return static_cast<T>(x);
  else if constexpr (same<L, Leaf<T>>)
    return x;
  else
    return __builtin_convertvector(x, Leaf<T>);
}
// The same bits as another number of the same size.
template <class T, class L>
BRAZE_INLINE auto bits_as(L x) {
  if constexpr (is_number<L>)
    return __builtin_bit_cast(T, x);
  else
    return __builtin_bit_cast(Leaf<T>, x);
}
template <class L>
BRAZE_INLINE L num(L, double x) {  // a constant in the shape of a leaf
  if constexpr (is_number<L>) {
    return static_cast<L>(x);
  } else {
    return splat<Number<L>>(static_cast<Number<L>>(x));
  }
}
// A comparison of leaves as a truth value.
template <class L>
BRAZE_INLINE auto truth(L compared) {
  if constexpr (is_number<L>)
    return compared;
  else
    return convert<Int<kMaskBytes>>(compared);
}
template <class M, class L>
BRAZE_INLINE L choose(M m, L x, L y) {
  if constexpr (is_number<L>)
    return m ? x : y;
  else
    return convert<Int<element_bytes<L>>>(m) ? x : y;
}
template <class M>
BRAZE_INLINE bool any(M m) {
  if constexpr (is_number<M>) {
    return m;
  } else if constexpr (sizeof(M) > 8) {
    using Half = Int<8> __attribute__((vector_size(16)));
    struct Parts {
      Half half[sizeof(M) / 16];
    };
    Parts p = __builtin_bit_cast(Parts, m);
    Half all = p.half[0];
    for (unsigned i = 1; i < sizeof(M) / 16; ++i) all |= p.half[i];
    return (all[0] | all[1]) != 0;
  } else {
    return __builtin_bit_cast(Int<sizeof(M)>, m) != 0;
  }
}

// f of the leaves of values, as a value of R.
template <int I, class F, class... V>
BRAZE_INLINE auto at_part(F f, const V&... v) {
  return f(part_of<I>(v)...);
}
template <class R, int N, class F, int... I, class... V>
BRAZE_INLINE Vec<R, N> map_parts(F f, Sequence<I...>, const V&... v) {
  return {{at_part<I>(f, v...)...}};
}
template <class R, class F, class... V>
BRAZE_INLINE auto map(F f, const V&... v) {
  constexpr int n = lanes_of<V...>;
  if constexpr (n == 1)
    return static_cast<R>(f(v...));
  else
    return map_parts<R, n>(f, Count<n / kLanes>(), v...);
}
// f(number of the lane) for every lane.
template <class R, int First, class F, int... I>
BRAZE_INLINE Leaf<R> make_leaf(F f, Sequence<I...>) {
  return Leaf<R>{f(First + I)...};
}
template <class R, int N, class F, int... I>
BRAZE_INLINE Vec<R, N> make_parts(F f, Sequence<I...>) {
  return {{make_leaf<R, I * kLanes>(f, Count<kLanes>())...}};
}
template <class R, int N, class F>
BRAZE_INLINE auto make(Lanes<N>, F f) {
  if constexpr (N == 1)
    return static_cast<R>(f(0));
  else
    return make_parts<R, N>(f, Count<N / kLanes>());
}
// first, first + step, ...
template <class R, int N>
BRAZE_INLINE auto ramp(Lanes<N> lanes, int64_t first, int64_t step) {
  return make<R>(lanes, [=](int64_t lane) BRAZE_LAMBDA { return static_cast<R>(first + step * lane); });
}
template <class T>
BRAZE_INLINE T lane_of(T x, int) {
  return x;
}
template <class T, int N>
BRAZE_INLINE auto lane_of(const Vec<T, N>& v, int lane) {
  if constexpr (same<T, bool>)
    return v.part[lane / kLanes][lane % kLanes] != 0;
  else
    return v.part[lane / kLanes][lane % kLanes];
}
// The same value in so many lanes.
template <class T, int N>
BRAZE_INLINE Value<T, N> spread(Lanes<N>, T x) {
  if constexpr (N == 1)
    return x;
  else
    return map_parts<T, N>([x] BRAZE_LAMBDA { return splat<T>(x); }, Count<N / kLanes>());
}
template <class T, int N>
BRAZE_INLINE Vec<T, N> spread(Lanes<N>, const Vec<T, N>& x) {
  return x;
}

// --- selection and comparison
template <class M, class X, class Y>
BRAZE_INLINE auto where(const M& m, const X& x, const Y& y) {
  return map<Element<X>>([](auto c, auto a, auto b) BRAZE_LAMBDA { return choose(c, a, b); }, m, x, y);
}
#define BRAZE_COMPARISON(name, sign)                                                     \
  template <class X, class Y>                                                            \
  BRAZE_INLINE auto name(const X& x, const Y& y) {                                       \
    return map<bool>([](auto a, auto b) BRAZE_LAMBDA { return truth(a sign b); }, x, y); \
  }
BRAZE_COMPARISON(equal, ==)
BRAZE_COMPARISON(not_equal, !=)
BRAZE_COMPARISON(less, <)
BRAZE_COMPARISON(less_equal, <=)
BRAZE_COMPARISON(greater, >)
BRAZE_COMPARISON(greater_equal, >=)
#undef BRAZE_COMPARISON

#define BRAZE_BITWISE(name, sign)                                                                                 \
  template <class X, class Y>                                                                                     \
  BRAZE_INLINE auto name(const X& x, const Y& y) {                                                                \
    return map<Element<X>>([](auto a, auto b) BRAZE_LAMBDA { return static_cast<decltype(a)>(a sign b); }, x, y); \
  }
BRAZE_BITWISE(bit_and, &)
BRAZE_BITWISE(bit_or, |)
BRAZE_BITWISE(bit_xor, ^)
#undef BRAZE_BITWISE
template <class X>
BRAZE_INLINE auto bit_not(const X& x) {
  if constexpr (same<X, bool>)
    return !x;
  else
    return map<Element<X>>([](auto a) BRAZE_LAMBDA { return static_cast<decltype(a)>(~a); }, x);
}
template <class X>
BRAZE_INLINE bool any_lane(const X& x) {
  bool found = false;
  if constexpr (lanes_of<X> == 1) {
    found = x;
  } else {
    for (int i = 0; i < lanes_of<X> / kLanes; ++i) found |= any(x.part[i]);
  }
  return found;
}

}  // namespace braze
