// Nests that add up windows of a row: neighbouring points want mostly the same elements, so a thread that computes
// several of them reads each once.
#pragma once
#include <optional>

#include "loop/loop.h"

namespace braze::loop {

inline constexpr int64_t kMostTaps = 16;  // of a row, each of which is written out

// The nest's first stage sums over axes of known sizes, the last of them `taps` places of a row, without any other
// effect, and no later one has axes. What it loads for the next point of the outer axis `strip` (which is not the last
// one) is what it loads for this one `step` taps further on.
//
//   for ..., strip, ..., last:  sum over rows and taps of  f(x(strip * step + tap, ...), ...)
struct Window {
  size_t strip = 0;    // an outer axis, of known size
  int64_t points = 0;  // its size
  int64_t step = 1, taps = 0;
};

// The nest's first stage adds up floats over its axes without any other effect, no later one has axes, and the nest
// stores to nothing that the first one loads: its loads may be done for several points before the first is stored.
bool sums_first(const Program& program, const Nest& nest);

// nullopt: the nest is something else.
std::optional<Window> window_of(const Program& program, const Nest& nest);

}  // namespace braze::loop
