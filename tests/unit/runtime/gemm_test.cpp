#include "runtime/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace braze::runtime {
namespace {

std::vector<float> numbers(std::mt19937& random, int64_t n) {
  std::uniform_real_distribution<float> real(-1, 1);
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = real(random);
  return v;
}

void expect_product(const GemmNT& g) {
  for (int64_t i = 0; i < g.m; ++i) {
    for (int64_t j = 0; j < g.n; ++j) {
      double sum = g.bias ? g.bias[j] : 0;
      for (int64_t l = 0; l < g.k; ++l) sum += double(g.a[i * g.lda + l]) * g.b[j * g.ldb + l];
      ASSERT_NEAR(g.c[i * g.ldc + j], sum, 1e-4) << g.m << " " << g.n << " " << g.k;
    }
    ASSERT_EQ(g.c[i * g.ldc + g.n], 77.f);
  }
}

class Gemm : public ::testing::TestWithParam<CpuLevel> {};

TEST_P(Gemm, AgreesWithDoublesForEveryTail) {
  if (!gemm_nt_has(GetParam())) GTEST_SKIP() << "this CPU does not have the instructions";
  std::mt19937 random(1);
  for (int64_t m : {1, 2, 5, 6, 7, 13, 300})
    for (int64_t n : {1, 4, 6, 31})
      for (int64_t k : {1, 7, 8, 15, 16, 37, 1024, 1100})
        for (bool biased : {false, true}) {
          int64_t lda = k + 3, ldb = k + 1, ldc = n + 2;
          std::vector<float> a = numbers(random, m * lda), b = numbers(random, n * ldb), bias = numbers(random, n),
                             c(m * ldc, 77.f);
          GemmNT g{m, n, k, a.data(), lda, b.data(), ldb, biased ? bias.data() : nullptr, c.data(), ldc};
          int64_t half = n / 2 / kGemmColumns * kGemmColumns;
          gemm_nt_with(GetParam(), g, 0, half);
          gemm_nt_with(GetParam(), g, half, n);
          expect_product(g);
          if (HasFatalFailure()) return;
        }
}

INSTANTIATE_TEST_SUITE_P(Levels, Gemm, ::testing::Values(CpuLevel::Baseline, CpuLevel::Avx2, CpuLevel::Avx512),
                         [](const auto& info) {
                           return info.param == CpuLevel::Avx512 ? "Avx512"
                                  : info.param == CpuLevel::Avx2 ? "Avx2"
                                                                 : "Baseline";
                         });

// Whatever the machine has, and whatever BRAZE_CPU forces.
TEST(GemmDispatch, RunsOnEveryMachine) {
  std::mt19937 random(2);
  int64_t m = 7, n = 37, k = 300, ldc = n + 1;
  std::vector<float> a = numbers(random, m * k), b = numbers(random, n * k), c(m * ldc, 77.f);
  GemmNT g{m, n, k, a.data(), k, b.data(), k, nullptr, c.data(), ldc};
  gemm_nt(g, 0, n);
  expect_product(g);
  EXPECT_EQ(gemm_nt_pays(16, 1024, 1024), gemm_nt_has(CpuLevel::Avx2));
  EXPECT_EQ(gemm_nt_pays(64, 1024, 1024), gemm_nt_has(CpuLevel::Avx2));
  EXPECT_EQ(gemm_nt_pays(64, 1024, 256), gemm_nt_has(CpuLevel::Avx512) && forced_cpu() != CpuLevel::Avx2);
  EXPECT_FALSE(gemm_nt_pays(1, 1024, 1024));
  EXPECT_FALSE(gemm_nt_pays(512, 1024, 1024));
}

}  // namespace
}  // namespace braze::runtime
