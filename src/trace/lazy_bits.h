// What PyTorch has not done to a tensor's memory yet. No torch header.
#pragma once

namespace braze::trace {

// x.conj() and the imaginary part of a conjugate are views that carry a bit: each element is the conjugate, or the
// negative, of what the memory holds. Values of the graph are memory; the bits are on the fake tensors and on results.
struct LazyBits {
  bool conj = false, neg = false;

  bool any() const { return conj || neg; }
  friend bool operator==(const LazyBits&, const LazyBits&) = default;
};

}  // namespace braze::trace
