// Reductions. Each takes a value of all its lanes, or, where a row ends, single numbers; `result` is of each lane (the
// lanes are points of their own), `total` of all lanes together.
#pragma once
#include "functions.h"

namespace braze {

template <class T>
constexpr T least_of() {
  if constexpr (is_float<T>)
    return static_cast<T>(-__builtin_inf());
  else if constexpr (is_signed<T>)
    return static_cast<T>(uint64_t(1) << (8 * sizeof(T) - 1));
  else
    return T(0);
}
template <class T>
constexpr T greatest_of() {
  if constexpr (is_float<T>)
    return static_cast<T>(__builtin_inf());
  else
    return static_cast<T>(~least_of<T>());
}

// How two become one.
struct Sum {
  template <class T>
  static constexpr T start = T(0);
  template <class X, class Y>
  static BRAZE_INLINE auto join(const X& x, const Y& y) {
    return add(x, y);
  }
};
struct Product {
  template <class T>
  static constexpr T start = T(1);
  template <class X, class Y>
  static BRAZE_INLINE auto join(const X& x, const Y& y) {
    return mul(x, y);
  }
};
struct Largest {
  template <class T>
  static constexpr T start = least_of<T>();
  template <class X, class Y>
  static BRAZE_INLINE auto join(const X& x, const Y& y) {
    return max(x, y);
  }
};
struct Smallest {
  template <class T>
  static constexpr T start = greatest_of<T>();
  template <class X, class Y>
  static BRAZE_INLINE auto join(const X& x, const Y& y) {
    return min(x, y);
  }
};
struct AnyOf {
  template <class T>
  static constexpr T start = false;
  template <class X, class Y>
  static BRAZE_INLINE auto join(const X& x, const Y& y) {
    return bit_or(x, y);
  }
};
struct AllOf {
  template <class T>
  static constexpr T start = true;
  template <class X, class Y>
  static BRAZE_INLINE auto join(const X& x, const Y& y) {
    return bit_and(x, y);
  }
};

// log(exp x + exp y). Their distance is NaN where both are infinite, or one is NaN: then the larger is the sum.
struct LogSum {
  template <class T>
  static constexpr T start = least_of<T>();
  template <class X, class Y>
  static BRAZE_INLINE auto join(const X& x, const Y& y) {
    const auto top = max(x, y);
    const auto below = sub(min(x, y), top);
    return where(is_nan(below), top, add(top, log1p(exp(below))));
  }
};

// What was joined so far, in each lane.
template <class Way, class T, int N>
struct Running {
  Value<T, N> all = spread(Lanes<N>(), Way::template start<T>);
  BRAZE_INLINE Value<T, N> next(const Value<T, N>& v) { return all = Way::join(all, v); }
};

// The same along the lanes, one after the other.
template <class Way, class T>
struct RunningRow {
  T all = Way::template start<T>;
  template <class V>
  BRAZE_INLINE V next(V v) {
    if constexpr (lanes_of<V> == 1) {
      v = all = Way::join(all, v);
    } else {
      for (int i = 0; i < lanes_of<V>; ++i) v.part[i / kLanes][i % kLanes] = all = Way::join(all, lane_of(v, i));
    }
    return v;
  }
};

template <class Way, class T, int N>
struct Reduction {
  // Long sums of floats in two levels: rounding errors grow with the number of additions to one number.
  static constexpr bool in_runs = same<Way, Sum> && is_float<T>;
  static constexpr int kRun = 64;
  Value<T, N> all = spread(Lanes<N>(), Way::template start<T>), run = all;
  T rest = Way::template start<T>;
  int steps = 0;

  template <class V>
  BRAZE_INLINE void take(const V& v) {
    if constexpr (lanes_of<V> < N) {
      rest = Way::join(rest, v);
    } else if constexpr (in_runs) {
      run = Way::join(run, v);
      if (++steps == kRun) {
        all = Way::join(all, run);
        run = spread(Lanes<N>(), Way::template start<T>);
        steps = 0;
      }
    } else {
      all = Way::join(all, v);
    }
  }
  BRAZE_INLINE Value<T, N> result() const {
    if constexpr (in_runs)
      return Way::join(all, run);
    else
      return all;
  }
  BRAZE_INLINE T total() const {
    const Value<T, N> v = result();
    T out = rest;
    for (int i = 0; i < N; ++i) out = Way::join(out, lane_of(v, i));
    return out;
  }
};

// The index of the greatest (or least) element: NaN wins, of equals the first.
template <bool Greatest, class T, int N>
struct Place {
  static constexpr int64_t kNone = 0x7fffffffffffffff;
  static constexpr T kStart = Greatest ? least_of<T>() : greatest_of<T>();
  Value<T, N> best = spread(Lanes<N>(), kStart);
  Value<int64_t, N> at = spread(Lanes<N>(), kNone);
  T best_rest = kStart;
  int64_t at_rest = kNone;

  template <class X, class I>
  static BRAZE_INLINE void join(X& best, I& at, const X& x, const I& i) {
    auto better = Greatest ? greater(x, best) : less(x, best);
    auto tie = equal(x, best);
    if constexpr (is_float<T>) {
      better = bit_or(better, bit_and(is_nan(x), bit_not(is_nan(best))));
      tie = bit_or(tie, bit_and(is_nan(x), is_nan(best)));
    }
    better = bit_or(better, bit_and(tie, less(i, at)));
    best = where(better, x, best);
    at = where(better, i, at);
  }
  template <class X, class I>
  BRAZE_INLINE void take(const X& x, const I& i) {
    if constexpr (lanes_of<X> < N)
      join(best_rest, at_rest, x, i);
    else
      join(best, at, x, i);
  }
  BRAZE_INLINE Value<int64_t, N> result() const { return at; }
  BRAZE_INLINE int64_t total() const {
    T out = best_rest;
    int64_t place = at_rest;
    for (int l = 0; l < N; ++l) join(out, place, lane_of(best, l), lane_of(at, l));
    return place;
  }
};

// Mean and sum of squared deviations: of the distances to a centre near the mean, which values far from zero lose no
// digits to. It is the first value at first, and moves to the mean after every run, of which the first are short.
template <class T, int N>
struct Moments {
  using V = Value<T, N>;
  struct Result {
    V mean, squares;
  };
  struct Total {
    T mean, squares;
  };
  V zero = spread(Lanes<N>(), T(0)), centre = zero, sum = zero, sum_of_squares = zero, mean = zero, squares = zero;
  T count = 0, before = 0;  // in this run, and before it
  int left = 2, length = 2;

  BRAZE_INLINE void settle() {
    const T n = count;
    if (n == 0) return;
    const V own = mul(sum, T(1) / n);
    V around = max(sub(sum_of_squares, mul(sum, own)), T(0));
    const V delta = sub(own, mean);
    const T share = n / (before + n);
    // The weight first: it may be 0 where the square is infinite.
    around = add(squares, add(around, mul(mul(delta, before * share), delta)));
    const V next = before == 0 ? own : add(mean, mul(delta, share)), moved = add(centre, next);
    squares = around;
    mean = sub(next, sub(moved, centre));
    centre = moved;
    sum = sum_of_squares = zero;
    before += n;
    count = 0;
    length = length < 16 ? 4 * length : 16;
    left = length;
  }
  BRAZE_INLINE void take(const V& v) {
    if (before + count == 0) centre = v;
    const V d = sub(v, centre);
    sum = add(sum, d);
    sum_of_squares = multiply_add(d, d, sum_of_squares);
    count += 1;
    if (--left == 0) settle();
  }
  BRAZE_INLINE Result result() {
    settle();
    return {add(centre, mean), squares};
  }
};
// Of a row: those of the lanes, and of what is left where it ends.
template <class T, int N>
struct RowMoments {
  Moments<T, N> lanes;
  Moments<T, 1> rest;
  template <class V>
  BRAZE_INLINE void take(const V& v) {
    if constexpr (lanes_of<V> < N)
      rest.take(v);
    else
      lanes.take(v);
  }
  BRAZE_INLINE typename Moments<T, 1>::Total total() {
    lanes.settle();
    rest.settle();
    T n = rest.before, centre = rest.centre, mean = rest.mean, squares = rest.squares;
    for (int l = 0; l < N; ++l) {
      const T more = lanes.before;
      if (more == 0) continue;
      const T c = lane_of(lanes.centre, l), m = lane_of(lanes.mean, l);
      if (n == 0) centre = c, mean = m;
      const T delta = (c - centre) + (m - mean), share = more / (n + more);
      squares = squares + (lane_of(lanes.squares, l) + delta * (delta * (n * share)));
      mean = mean + delta * share;
      n += more;
    }
    return {centre + mean, squares};
  }
};

// The sum of exp(x - max x), NaN where nothing is above -inf or the maximum is infinite; and that maximum.
template <class T, int N>
struct Exponents {
  using V = Value<T, N>;
  V top = spread(Lanes<N>(), least_of<T>()), sum = spread(Lanes<N>(), T(0)), run = sum;
  T top_rest = least_of<T>(), sum_rest = 0;
  int steps = 0;

  // What exponents are relative to, so that the terms of -inf are 0 and not NaN.
  template <class X>
  static BRAZE_INLINE X base(const X& top) {
    return where(equal(top, least_of<T>()), T(0), top);
  }
  template <class X>
  BRAZE_INLINE void take(const X& x) {
    if constexpr (lanes_of<X> < N) {
      join(top_rest, sum_rest, x, T(1));
    } else {
      const V next = max(top, x), from = spread(Lanes<N>(), base(next));
      if (any_lane(not_equal(top, next))) {
        const V share = exp(sub(top, from));
        sum = mul(sum, share);
        run = mul(run, share);
        top = next;
      }
      run = add(run, exp(sub(x, from)));
      if (++steps == 64) {
        sum = add(sum, run);
        run = spread(Lanes<N>(), T(0));
        steps = 0;
      }
    }
  }
  static BRAZE_INLINE void join(T& top, T& sum, T more_top, T more_sum) {
    const T next = max(top, more_top), from = next == least_of<T>() ? T(0) : next;
    sum = sum * exp(top - from) + more_sum * exp(more_top - from);
    top = next;
  }
  BRAZE_INLINE V result() const {
    return where(equal(top, least_of<T>()), spread(Lanes<N>(), T(__builtin_nan(""))), add(sum, run));
  }
  BRAZE_INLINE V result_top() const { return top; }
  BRAZE_INLINE void together(T& t, T& s) const {
    t = top_rest, s = sum_rest;
    const V all = add(sum, run);
    for (int l = 0; l < N; ++l) join(t, s, lane_of(top, l), lane_of(all, l));
  }
  BRAZE_INLINE T total() const {
    T t, s;
    together(t, s);
    return t == least_of<T>() ? T(__builtin_nan("")) : s;
  }
  BRAZE_INLINE T total_top() const {
    T t, s;
    together(t, s);
    return t;
  }
};

}  // namespace braze
