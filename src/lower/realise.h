// When a value gets a buffer of its own instead of being computed inside each reader. The scheduler fuses what is
// realised with its readers where it can, so that a buffer costs little; recomputation and huge bodies are what these
// limits bound.
#pragma once
#include <cstddef>

namespace braze::lower {

// Always: bodies beyond this are slow to compile and spill registers.
inline constexpr size_t kMaxInlinedOps = 48;
inline constexpr size_t kMaxReads = 12;
// With several readers: recomputing costs more than one store and the readers' loads.
inline constexpr size_t kMaxSharedOps = 16;
inline constexpr size_t kMaxSharedReads = 4;
// Under a broadcast: each element would be computed many times.
inline constexpr size_t kMaxBroadcastOps = 3;

}  // namespace braze::lower
