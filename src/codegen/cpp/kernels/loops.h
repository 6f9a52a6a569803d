// Loops of kernels, threads, and what kernels find wrong with the data.
#pragma once
#include "memory.h"
#include "reductions.h"

extern "C" {
void braze_parallel_for(int64_t begin, int64_t end, int64_t grain, void (*f)(void*, int64_t, int64_t), void* context);
void braze_fault(int64_t kind, int64_t value, int64_t bound);
void* braze_scratch(int64_t bytes);
}

namespace braze {

// f(lanes, i) for groups of N neighbours, then for single ones.
template <int N, class F>
BRAZE_INLINE void along(int64_t begin, int64_t end, F f) {
  int64_t i = begin;
  if constexpr (N > 1)
    for (; i + N <= end; i += N) f(Lanes<N>(), i);
  for (; i < end; ++i) f(Lanes<1>(), i);
}

// f(begin, end) for parts of [0, n) of at least `grain`, on PyTorch's threads.
template <class F>
BRAZE_INLINE void parallel_for(int64_t n, int64_t grain, F f) {
  braze_parallel_for(
      0, n, grain, [](void* context, int64_t lo, int64_t hi) { (*static_cast<F*>(context))(lo, hi); }, &f);
}

BRAZE_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
BRAZE_INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
BRAZE_INLINE int64_t floor_quotient_of(int64_t a, int64_t b) { return whole_floor_quotient(a, b); }
BRAZE_INLINE int64_t floor_rest_of(int64_t a, int64_t b) { return whole_floor_rest(a, b); }

// An index that was read, counted from the end where it is negative and Wrap says so. What is out of range is reported
// and reads element 0.
template <int Kind, bool Wrap, class V>
BRAZE_INLINE auto checked(const V& v, int64_t bound) {
  constexpr int n = lanes_of<V>;
  return make<int64_t>(Lanes<n>(), [&](int lane) BRAZE_LAMBDA -> int64_t {
    const int64_t given = lane_of(v, lane), at = Wrap && given < 0 ? given + bound : given;
    if (__builtin_expect(static_cast<uint64_t>(at) >= static_cast<uint64_t>(bound), 0)) {
      braze_fault(Kind, given, bound);
      return 0;
    }
    return at;
  });
}
template <int Kind, class V>
BRAZE_INLINE void check_divisor(const V& v) {
  if (__builtin_expect(any_lane(equal(v, Element<V>(0))), 0)) braze_fault(Kind, 0, 0);
}

}  // namespace braze
