#include "base/cpu.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

namespace braze {
namespace {

struct Level {
  std::string_view name;  // in BRAZE_CPU
  CpuLevel level;
};
constexpr std::array<Level, 3> kLevels = {
    {{"avx2", CpuLevel::Avx2}, {"avx512", CpuLevel::Avx512}, {"neon", CpuLevel::Neon}}};

CpuLevel detect() {
#if defined(__x86_64__)
#define HAS __builtin_cpu_supports
  if (!(HAS("avx2") && HAS("fma") && HAS("f16c") && HAS("bmi") && HAS("bmi2") && HAS("lzcnt") && HAS("movbe")))
    return CpuLevel::Baseline;
  if (!(HAS("avx512f") && HAS("avx512bw") && HAS("avx512cd") && HAS("avx512dq") && HAS("avx512vl")))
    return CpuLevel::Avx2;
  return CpuLevel::Avx512;
#undef HAS
#elif defined(__aarch64__)
  return CpuLevel::Neon;
#else
  return CpuLevel::Baseline;
#endif
}

struct Asked {
  std::optional<CpuLevel> level;
  std::optional<int64_t> cache;
  std::string error;
};

void ask_cache(Asked& a) {
  const char* value = std::getenv("BRAZE_CPU_CACHE");
  const std::string_view text = value ? value : "";
  if (text.empty()) return;
  int64_t bytes = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (error == std::errc() && end == text.data() + text.size() && bytes > 0)
    a.cache = bytes;
  else
    a.error = "BRAZE_CPU_CACHE: a number of bytes from 1 on is expected, not '" + std::string(text) + "'";
}

const Asked& asked() {
  static const Asked result = [] {
    Asked a;
    ask_cache(a);
    const char* value = std::getenv("BRAZE_CPU");
    std::string_view name = value ? value : "";
    if (name.empty() || name == "host") return a;
    for (const Level& l : kLevels)
      if (l.name == name) a.level = l.level;
    if (!a.level)
      a.error = "BRAZE_CPU: no CPU '" + std::string(name) + "'; accepted: avx2, avx512, neon, host";
    else if (!includes(host_cpu(), *a.level))
      a.error = "BRAZE_CPU=" + std::string(name) + ": this CPU does not have these instructions";
    return a;
  }();
  return result;
}

}  // namespace

bool includes(CpuLevel cpu, CpuLevel wanted) {
  return wanted == CpuLevel::Baseline || cpu == wanted || (cpu == CpuLevel::Avx512 && wanted == CpuLevel::Avx2);
}

bool host_has_halves() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx512fp16");
  return has;
#else
  return false;
#endif
}

CpuLevel host_cpu() {
  static const CpuLevel level = detect();
  return level;
}

std::optional<CpuLevel> forced_cpu() { return asked().level; }
std::optional<int64_t> forced_cache() { return asked().cache; }
const std::string& cpu_error() { return asked().error; }

}  // namespace braze
