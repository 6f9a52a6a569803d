// Which instructions machine code of ours may use: all that this CPU has, or those that the environment variable
// BRAZE_CPU names.
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
// Empty, or why BRAZE_CPU cannot be obeyed: an unknown name, or instructions that this CPU lacks. Code is then not to
// be run; it can be looked at.
const std::string& cpu_error();

}  // namespace braze
