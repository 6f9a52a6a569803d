// Where the NULL is that stands on the stack beside a callable without a `self`: versions before 3.13 have it below the
// callable, later ones above.
#pragma once
#include <Python.h>

namespace braze::capture::cpython {

inline constexpr bool kNullAbove = PY_VERSION_HEX >= 0x030D0000;

// Whether the __exit__ of a `with` waits on the stack as such a pair, not as one bound method.
inline constexpr bool kExitIsPair = PY_VERSION_HEX >= 0x030E0000;

// The two in the order of the stack. T: a pointer.
template <class T>
struct CallPair {
  T lower, upper;
};
template <class T>
CallPair<T> without_self(T callable) {
  return kNullAbove ? CallPair<T>{callable, nullptr} : CallPair<T>{nullptr, callable};
}
// The callable of two neighbours on the stack that are such a pair; nullptr: they are none.
template <class T>
T called_without_self(T lower, T upper) {
  T stands = kNullAbove ? lower : upper, null = kNullAbove ? upper : lower;
  return null ? nullptr : stands;
}
// What is called, of a pair with or without `self`; `self` is nullptr if there is none.
template <class T>
struct Called {
  T callable, self;
};
template <class T>
Called<T> called(T lower, T upper) {
  if (!lower) return {upper, nullptr};
  return {lower, upper};
}

}  // namespace braze::capture::cpython
