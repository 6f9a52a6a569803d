// Which CPU machine code of ours is for: the one at hand, or what the environment variables BRAZE_CPU and
// BRAZE_CPU_CACHE say of it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "base/target.h"

namespace braze {

// The levels that our code distinguishes.
enum class CpuLevel : uint8_t {
  Baseline,  // any CPU of its architecture
  Avx2,      // x86-64-v3: AVX2, FMA, F16C, BMI
  Avx512,    // x86-64-v4: F, BW, CD, DQ, VL; and what the one before has
  Neon,      // AArch64, any
};
// Whether a CPU of level `cpu` has all instructions of `wanted`.
bool includes(CpuLevel cpu, CpuLevel wanted);

#if defined(__aarch64__)
inline constexpr Target::Architecture kHostArchitecture = Target::Architecture::AArch64;
#else
inline constexpr Target::Architecture kHostArchitecture = Target::Architecture::X86_64;
#endif

// What this CPU has.
CpuLevel host_cpu();
// Whether it computes in f16: AVX512-FP16.
bool host_has_halves();
// What BRAZE_CPU asks for (read once): "avx2", "avx512", "neon"; nothing: the host, with all that it has beyond its
// level.
std::optional<CpuLevel> forced_cpu();
// What BRAZE_CPU_CACHE says (read once): bytes of the last cache that code is written for. With few, small tensors show
// what is done for those that no cache holds.
std::optional<int64_t> forced_cache();
// Empty, or why one of them cannot be obeyed: an unknown name, instructions that this CPU lacks, no number. Code is
// then not to be run; it can be looked at.
const std::string& cpu_error();

}  // namespace braze
