#include "runtime/pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace braze::runtime {
namespace {

TEST(Pool, ReusesBlocksOfLikeSize) {
  trim_pool();
  void* a = pool_allocate((1 << 20) + 1);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
  std::memset(a, 1, 1 << 20);
  pool_free(a);
  void* b = pool_allocate((1 << 20) + 50000);
  EXPECT_EQ(a, b);
  void* c = pool_allocate((1 << 20) + 2);
  EXPECT_NE(b, c);
  pool_free(b);
  pool_free(c);
  EXPECT_GE(trim_pool(), size_t{2} << 20);
  EXPECT_EQ(trim_pool(), 0u);
}

TEST(Pool, HoldsNoMoreMemoryThanItWasAskedFor) {
  trim_pool();
  for (size_t bytes : {size_t{9} << 20, size_t{6} << 20, size_t{9} << 18, kPooledBytes}) {
    void* a = pool_allocate(bytes);
    std::memset(a, 1, bytes);
    pool_free(a);
    EXPECT_EQ(trim_pool(), bytes);
  }
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
