// Elements of memory as values, and back. What follows a Lanes argument are the elements of that many neighbours, of
// `gather` and `scatter` those that a function of the lane's number gives.
#pragma once
#include "convert.h"

namespace braze {

template <class T>
BRAZE_INLINE T read(const void* p) {
  T x;
  __builtin_memcpy(&x, p, sizeof x);
  return x;
}
template <class T, int N, int... I>
BRAZE_INLINE Vec<InRegister<T>, N> load_parts(const T* p, Sequence<I...>) {
  return {{leaf_from_memory<T>(read<Leaf<Kept<T>>>(p + I * kLanes))...}};
}
template <int N, class T>
BRAZE_INLINE auto load(Lanes<N>, const T* p) {
  if constexpr (N == 1)
    return from_memory(*p);
  else
    return load_parts<T, N>(p, Count<N / kLanes>());
}
// One element for all lanes.
template <class T>
BRAZE_INLINE auto load_one(const T* p) {
  return from_memory(*p);
}
template <int N, class T, class F>
BRAZE_INLINE auto gather(Lanes<N> lanes, const T* p, F place) {
  if constexpr (N == 1) {
    return from_memory(p[place(0)]);
  } else {
    auto kept = make<Kept<T>>(lanes, [=](int lane) BRAZE_LAMBDA { return static_cast<Kept<T>>(p[place(lane)]); });
    return map<InRegister<T>>([](auto leaf) BRAZE_LAMBDA { return leaf_from_memory<T>(leaf); }, kept);
  }
}

template <class T, int N, int... I>
BRAZE_INLINE void store_parts(T* p, const Vec<InRegister<T>, N>& v, Sequence<I...>) {
  auto one = [](T* at, Leaf<Kept<T>> leaf) BRAZE_LAMBDA { __builtin_memcpy(at, &leaf, sizeof leaf); };
  (one(p + I * kLanes, leaf_to_memory<T>(v.part[I])), ...);
}
template <int N, class T, class V>
BRAZE_INLINE void store(Lanes<N> lanes, T* p, const V& v) {
  if constexpr (N == 1)
    *p = to_memory<T>(v);
  else
    store_parts<T, N>(p, spread(lanes, v), Count<N / kLanes>());
}
template <class T, class V>
BRAZE_INLINE void store_one(T* p, V v) {
  *p = to_memory<T>(lane_of(v, 0));
}
template <int N, class T, class F, class V>
BRAZE_INLINE void scatter(Lanes<N>, T* p, F place, const V& v) {
  for (int lane = 0; lane < N; ++lane) p[place(lane)] = to_memory<T>(lane_of(v, lane));
}
// Adds in the order of the lanes, any of which may meet at one element. No other thread adds to it.
template <int N, class T, class F, class V>
BRAZE_INLINE void add_each(Lanes<N>, T* p, F place, const V& v) {
  for (int lane = 0; lane < N; ++lane) {
    T* at = p + place(lane);
    const auto old = from_memory(*at), more = lane_of(v, lane);
    if constexpr (same<T, boolean>)
      *at = to_memory<T>(old || more);
    else
      *at = to_memory<T>(static_cast<InRegister<T>>(old + more));
  }
}

}  // namespace braze
