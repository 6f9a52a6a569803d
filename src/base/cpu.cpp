#include "base/cpu.h"

#include <array>
#include <cstdlib>
#include <string_view>

namespace braze {
namespace {

struct Level {
  std::string_view name;  // in BRAZE_CPU
  CpuLevel level;
};
constexpr std::array<Level, 2> kLevels = {{{"avx2", CpuLevel::Avx2}, {"avx512", CpuLevel::Avx512}}};

CpuLevel detect() {
#if defined(__x86_64__)
#define HAS __builtin_cpu_supports
  if (!(HAS("avx2") && HAS("fma") && HAS("f16c") && HAS("bmi") && HAS("bmi2") && HAS("lzcnt") && HAS("movbe")))
    return CpuLevel::Baseline;
  if (!(HAS("avx512f") && HAS("avx512bw") && HAS("avx512cd") && HAS("avx512dq") && HAS("avx512vl")))
    return CpuLevel::Avx2;
  return CpuLevel::Avx512;
#undef HAS
#else
  return CpuLevel::Baseline;
#endif
}

struct Asked {
  std::optional<CpuLevel> level;
  std::string error;
};
const Asked& asked() {
  static const Asked result = [] {
    Asked a;
    const char* value = std::getenv("BRAZE_CPU");
    std::string_view name = value ? value : "";
    if (name.empty() || name == "host") return a;
    for (const Level& l : kLevels)
      if (l.name == name) a.level = l.level;
    if (!a.level)
      a.error = "BRAZE_CPU: no CPU '" + std::string(name) + "'; accepted: avx2, avx512, host";
    else if (*a.level > host_cpu())
      a.error = "BRAZE_CPU=" + std::string(name) + ": this CPU does not have these instructions";
    return a;
  }();
  return result;
}

}  // namespace

CpuLevel host_cpu() {
  static const CpuLevel level = detect();
  return level;
}

std::optional<CpuLevel> forced_cpu() { return asked().level; }
const std::string& cpu_error() { return asked().error; }

}  // namespace braze
