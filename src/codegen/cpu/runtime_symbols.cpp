#include "codegen/cpu/runtime_symbols.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "codegen/codegen.h"
#include "codegen/cpu/host.h"
#include "codegen/cpu/library.h"
#include "codegen/cpu/transpose.h"

namespace braze::codegen {
namespace cpu {
namespace {

using Task = void (*)(void*, int64_t, int64_t);

// A fault belongs to the thread that launched the kernel; the pool's threads write to that thread's slot.
struct FaultSlot {
  std::atomic<int> state{0};  // 0 none, 1 being written, 2 there
  loop::FaultReport report;
};
thread_local FaultSlot own_slot;
thread_local FaultSlot* current_slot = nullptr;
FaultSlot& slot() { return current_slot ? *current_slot : own_slot; }

void serial_for(int64_t begin, int64_t end, int64_t, Task fn, void* context) {
  if (begin < end) fn(context, begin, end);
}
std::atomic<ParallelFor> parallel_for{serial_for};
std::atomic<int (*)()> thread_count{nullptr};

struct Launch {
  Task fn;
  void* context;
  FaultSlot* slot;
};
void run_launch(void* p, int64_t lo, int64_t hi) {
  auto* launch = static_cast<Launch*>(p);
  FaultSlot* before = current_slot;
  current_slot = launch->slot;
  launch->fn(launch->context, lo, hi);
  current_slot = before;
}
void parallel_entry(int64_t begin, int64_t end, int64_t grain, Task fn, void* context) {
  if (begin >= end) return;
  if (end - begin <= grain) return fn(context, begin, end);
  Launch launch{fn, context, &slot()};
  parallel_for.load(std::memory_order_relaxed)(begin, end, grain, run_launch, &launch);
}

// kind: the Fault, and the dimension from bit 8 on.
void fault(int64_t kind, int64_t value, int64_t bound) {
  FaultSlot& s = slot();
  int none = 0;
  if (!s.state.compare_exchange_strong(none, 1)) return;
  s.report = {static_cast<loop::Fault>(kind & 255), value, bound, static_cast<uint8_t>(kind >> 8)};
  s.state.store(2, std::memory_order_release);
}

struct Scratch {
  void* memory = nullptr;
  size_t bytes = 0;
  ~Scratch() { std::free(memory); }
};
void* scratch(int64_t bytes) {
  thread_local Scratch s;
  auto wanted = (static_cast<size_t>(bytes < 64 ? 64 : bytes) + 63) / 64 * 64;
  if (s.bytes < wanted) {
    std::free(s.memory);
    s.memory = std::aligned_alloc(64, wanted);
    s.bytes = s.memory ? wanted : 0;
    if (!s.memory) std::abort();
  }
  return s.memory;
}

int64_t ipow(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, b = static_cast<uint64_t>(base);
  for (auto e = static_cast<uint64_t>(exponent); e; e >>= 1, b *= b)
    if (e & 1) result *= b;
  return static_cast<int64_t>(result);
}

template <class F>
void* address_of(F* f) {
  return reinterpret_cast<void*>(f);
}

#define BRAZE_LIBM1(name) \
  {#name, address_of<double(double)>(std::name)}, { #name "f", address_of<float(float)>(name##f) }
#define BRAZE_LIBM2(name) \
  {#name, address_of<double(double, double)>(std::name)}, { #name "f", address_of<float(float, float)>(name##f) }

}  // namespace

const std::vector<std::pair<std::string, void*>>& runtime_symbols() {
  static const auto* table = [] {
    auto* all = new std::vector<std::pair<std::string, void*>>{
        {"braze_parallel_for", address_of(parallel_entry)},
        {"braze_fault", address_of(fault)},
        {"braze_scratch", address_of(scratch)},
        {"braze_ipow", address_of(ipow)},
        {"braze_transpose1", address_of(transpose1)},
        {"braze_transpose2", address_of(transpose2)},
        {"braze_transpose4", address_of(transpose4)},
        {"braze_transpose8", address_of(transpose8)},
        {"memset", address_of<void*(void*, int, size_t)>(std::memset)},
        {"memcpy", address_of<void*(void*, const void*, size_t)>(std::memcpy)},
        {"memmove", address_of<void*(void*, const void*, size_t)>(std::memmove)},
        {"fma", address_of<double(double, double, double)>(std::fma)},
        {"fmaf", address_of<float(float, float, float)>(fmaf)},
        BRAZE_LIBM1(exp),
        BRAZE_LIBM1(exp2),
        BRAZE_LIBM1(expm1),
        BRAZE_LIBM1(log),
        BRAZE_LIBM1(log2),
        BRAZE_LIBM1(log10),
        BRAZE_LIBM1(log1p),
        BRAZE_LIBM1(sin),
        BRAZE_LIBM1(cos),
        BRAZE_LIBM1(tan),
        BRAZE_LIBM1(asin),
        BRAZE_LIBM1(acos),
        BRAZE_LIBM1(atan),
        BRAZE_LIBM1(sinh),
        BRAZE_LIBM1(cosh),
        BRAZE_LIBM1(tanh),
        BRAZE_LIBM1(asinh),
        BRAZE_LIBM1(acosh),
        BRAZE_LIBM1(atanh),
        BRAZE_LIBM1(erf),
        BRAZE_LIBM1(erfc),
        BRAZE_LIBM1(floor),
        BRAZE_LIBM1(ceil),
        BRAZE_LIBM1(trunc),
        BRAZE_LIBM2(pow),
        BRAZE_LIBM2(atan2),
        BRAZE_LIBM2(fmod),
        {"roundeven", address_of<double(double)>(std::nearbyint)},
        {"roundevenf", address_of<float(float)>(nearbyintf)},
    };
    for (const Symbols& more : {library_symbols(), host_symbols()}) all->insert(all->end(), more.begin(), more.end());
    return all;
  }();
  return *table;
}

}  // namespace cpu

void set_parallel_for(ParallelFor f, int (*threads)()) {
  cpu::parallel_for.store(f);
  cpu::thread_count.store(threads);
}
int threads() {
  auto* count = cpu::thread_count.load();
  return count ? count() : 1;
}

bool found_fault() { return cpu::own_slot.state.load(std::memory_order_acquire) == 2; }

std::optional<loop::FaultReport> take_fault() {
  cpu::FaultSlot& s = cpu::own_slot;
  if (!found_fault()) return std::nullopt;
  loop::FaultReport r = s.report;
  s.state.store(0);
  return r;
}

}  // namespace braze::codegen
