// Which instructions machine code of ours may use: all that this CPU has, or fewer where the environment variable
// BRAZE_CPU says so.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace braze {

// The levels of x86-64 that our code distinguishes; each has what those before it have.
enum class CpuLevel : uint8_t {
  Baseline,  // any x86-64
  Avx2,      // x86-64-v3: AVX2, FMA, F16C, BMI
  Avx512,    // x86-64-v4: F, BW, CD, DQ, VL
};

// What this CPU has.
CpuLevel host_cpu();
// What BRAZE_CPU asks for (read once): "avx2", "avx512"; nothing: the host, with all that it has beyond its level.
std::optional<CpuLevel> forced_cpu();
// Empty, or why BRAZE_CPU cannot be obeyed: an unknown name, or instructions that this CPU lacks. Code is then not to
// be run.
const std::string& cpu_error();

}  // namespace braze
