#include "base/cpu.h"

#include <gtest/gtest.h>

namespace braze {
namespace {

TEST(CpuLevel, HasWhatThoseBeforeItHave) {
  using enum CpuLevel;
  for (CpuLevel level : {Baseline, Avx2, Avx512, Neon}) {
    EXPECT_TRUE(includes(level, level));
    EXPECT_TRUE(includes(level, Baseline));
  }
  EXPECT_TRUE(includes(Avx512, Avx2));
  EXPECT_FALSE(includes(Avx2, Avx512));
  EXPECT_FALSE(includes(Baseline, Avx2));
  EXPECT_FALSE(includes(Avx512, Neon));
  EXPECT_FALSE(includes(Neon, Avx2));
  EXPECT_EQ(includes(host_cpu(), Neon), kHostArchitecture == Target::Architecture::AArch64);
}

}  // namespace
}  // namespace braze
