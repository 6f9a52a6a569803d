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

// Every half is a float; sums of products of these are rounded once.
TEST_P(Gemm, HalvesAreRoundedOnce) {
  if (!gemm_nt_has(GetParam())) GTEST_SKIP() << "this CPU does not have the instructions";
  std::mt19937 random(3);
  auto wide = [](uint16_t h, bool bfloat) {
    float f = 0;
    widen_half(&h, &f, 1, bfloat);
    return f;
  };
  for (bool bfloat : {true, false})
    for (int64_t m : {1, 3, 7, 300})
      for (int64_t n : {1, 4, 6})
        for (int64_t k : {0, 1, 8, 37, 1024, 1100})
          for (bool biased : {false, true}) {
            int64_t lda = k + 3, ldb = k + 1, ldc = n + 2;
            std::vector<float> a = numbers(random, m * lda);
            // Of either type below 2: a sign, and an exponent and digits that are not the greatest.
            auto halves = [&](int64_t count) {
              std::vector<uint16_t> v(static_cast<size_t>(count));
              for (uint16_t& h : v) h = static_cast<uint16_t>((random() & 0x8000) | (random() % 0x3c00));
              return v;
            };
            std::vector<uint16_t> b = halves(n * ldb), bias = halves(n), c(static_cast<size_t>(m * ldc), 0x7777);
            HalfGemmNT g{m, n, k, a.data(), lda, b.data(), ldb, biased ? bias.data() : nullptr, c.data(), ldc, bfloat};
            int64_t part = n / 2 / kGemmColumns * kGemmColumns;
            gemm_nt_half_with(GetParam(), g, 0, part);
            gemm_nt_half_with(GetParam(), g, part, n);
            for (int64_t i = 0; i < m; ++i) {
              for (int64_t j = 0; j < n; ++j) {
                double sum = biased ? wide(bias[j], bfloat) : 0, magnitude = std::abs(sum);
                for (int64_t l = 0; l < k; ++l) {
                  double term = double(a[i * lda + l]) * wide(b[j * ldb + l], bfloat);
                  sum += term, magnitude += std::abs(term);
                }
                double step = std::abs(sum) * (bfloat ? 0x1p-8 : 0x1p-10) + magnitude * 1e-5 + 1e-7;
                ASSERT_NEAR(wide(c[i * ldc + j], bfloat), sum, step) << m << " " << n << " " << k << " " << bfloat;
              }
              ASSERT_EQ(c[i * ldc + n], 0x7777);
            }
          }
}

TEST_P(Gemm, HalvesRoundToEvenAndKeepWhatIsNoNumber) {
  if (!gemm_nt_has(GetParam())) GTEST_SKIP() << "this CPU does not have the instructions";
  const float inf = INFINITY, tie = 1 + 0x1p-8f, odd = 1 + 3 * 0x1p-8f, large = 3.4e38f;
  const std::vector<float> a{tie, odd, -tie, inf, -inf, NAN, large, 0.0f};
  const uint16_t one = 0x3f80;
  std::vector<uint16_t> c(a.size());
  HalfGemmNT g{static_cast<int64_t>(a.size()), 1, 1, a.data(), 1, &one, 1, nullptr, c.data(), 1, true};
  gemm_nt_half_with(GetParam(), g, 0, 1);
  EXPECT_EQ(c[0], 0x3f80);
  EXPECT_EQ(c[1], 0x3f82);
  EXPECT_EQ(c[2], 0xbf80);
  EXPECT_EQ(c[3], 0x7f80);
  EXPECT_EQ(c[4], 0xff80);
  EXPECT_GT(c[5] & 0x7fff, 0x7f80);
  EXPECT_EQ(c[6], 0x7f80);
  EXPECT_EQ(c[7], 0);
  const std::vector<float> f{1 + 0x1p-11f, 1 + 3 * 0x1p-11f, 65520.0f, 0x1p-25f, 0x1.8p-25f, -inf};
  const uint16_t half = 0x3c00;
  std::vector<uint16_t> d(f.size());
  HalfGemmNT h{static_cast<int64_t>(f.size()), 1, 1, f.data(), 1, &half, 1, nullptr, d.data(), 1, false};
  gemm_nt_half_with(GetParam(), h, 0, 1);
  EXPECT_EQ(d, (std::vector<uint16_t>{0x3c00, 0x3c02, 0x7c00, 0x0000, 0x0001, 0xfc00}));
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
  EXPECT_EQ(gemm_nt_pays(16, 1024, 1024, false), gemm_nt_has(CpuLevel::Avx2));
  EXPECT_EQ(gemm_nt_pays(64, 1024, 1024, false), gemm_nt_has(CpuLevel::Avx2));
  EXPECT_EQ(gemm_nt_pays(64, 1024, 256, false), gemm_nt_has(CpuLevel::Avx512) && forced_cpu() != CpuLevel::Avx2);
  EXPECT_EQ(gemm_nt_pays(2, 1024, 1024, true), gemm_nt_has(CpuLevel::Avx2));
  EXPECT_FALSE(gemm_nt_pays(1, 1024, 1024, true));
  EXPECT_FALSE(gemm_nt_pays(512, 1024, 1024, true));
}

}  // namespace
}  // namespace braze::runtime
