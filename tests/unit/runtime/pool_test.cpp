#include "runtime/pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <thread>
#include <vector>

namespace braze::runtime {
namespace {

constexpr size_t MiB = size_t{1} << 20;
#if defined(__SANITIZE_THREAD__)
constexpr bool kShadowed = true;
#else
constexpr bool kShadowed = false;
#endif

size_t resident_bytes() {
  size_t whole = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> whole >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

long page_faults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

void* filled(size_t bytes) {
  void* p = pool_allocate(bytes);
  std::memset(p, 1, bytes);
  return p;
}

TEST(Pool, ReusesFreedBlocks) {
  trim_pool();
  void* a = filled(MiB + 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
  pool_free(a);
  void* b = pool_allocate(MiB + 50);
  EXPECT_EQ(a, b);
  void* c = pool_allocate(MiB);
  EXPECT_NE(b, c);
  pool_free(b);
  pool_free(c);
  EXPECT_GE(trim_pool(), 2 * MiB);
  EXPECT_EQ(trim_pool(), 0u);
}

TEST(Pool, NeighboursThatAreFreeBecomeOneBlock) {
  trim_pool();
  std::vector<void*> parts;
  for (int i = 0; i < 8; ++i) parts.push_back(filled(MiB));
  for (int i : {0, 2, 4, 6, 1, 3, 5, 7}) pool_free(parts[static_cast<size_t>(i)]);
  void* whole = pool_allocate(8 * MiB);
  EXPECT_EQ(whole, parts[0]);
  pool_free(whole);
}

TEST(Pool, GivesFreeMemoryBack) {
  if (kShadowed) GTEST_SKIP() << "a sanitizer's own memory is resident as well";
  trim_pool();
  size_t before = resident_bytes();
  for (size_t bytes : {90 * MiB, 61 * MiB, 25 * MiB + 100}) {
    void* a = filled(bytes);
    EXPECT_GE(resident_bytes(), before + bytes);
    pool_free(a);
    EXPECT_GE(trim_pool(), bytes);
    EXPECT_LE(resident_bytes(), before + 4 * MiB);
  }
}

TEST(Pool, HoldsNoMoreThanWasLiveAtOnce) {
  if (kShadowed) GTEST_SKIP() << "a sanitizer's own memory is resident as well";
  trim_pool();
  pool_free(filled(128 * MiB));  // more than any other test has at once
  size_t before = resident_bytes();
  // Neither fits into what the other one left.
  std::vector<void*> small;
  for (int i = 0; i < 64; ++i) small.push_back(filled(2 * MiB));
  for (size_t i = 0; i < small.size(); i += 2) pool_free(small[i]);
  void* large = filled(60 * MiB);
  EXPECT_LE(resident_bytes(), before + 4 * MiB);
  pool_free(large);
  for (size_t i = 1; i < small.size(); i += 2) pool_free(small[i]);
}

TEST(Pool, StepsThatRepeatBringNoNewPages) {
  trim_pool();
  auto step = [] {
    std::vector<void*> saved, gradients;
    for (size_t i = 0; i < 12; ++i) saved.push_back(filled((3 + i % 3) * MiB / 2));
    for (size_t i = 0; i < 12; ++i) {
      gradients.push_back(filled((2 + i % 5) * MiB));
      pool_free(saved.back());
      saved.pop_back();
    }
    for (void* p : gradients) pool_free(p);
  };
  for (int i = 0; i < 3; ++i) step();
  long before = page_faults();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_LE(page_faults() - before, 1000);  // of the 50 thousand pages that five steps fill
}

TEST(Pool, BlocksOfThreadsDoNotOverlap) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 100; ++i) {
        size_t bytes = kPooledBytes + (i % 7) * 30000;
        auto* p = static_cast<uint8_t*>(pool_allocate(bytes));
        std::memset(p, t, bytes);
        std::this_thread::yield();
        for (size_t k = 0; k < bytes; k += 4096) ASSERT_EQ(p[k], t);
        pool_free(p);
      }
    });
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace braze::runtime
