#include "runtime/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace braze::runtime {
namespace {

TEST(Gemm, AgreesWithDoublesForEveryTail) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> real(-1, 1);
  for (int64_t m : {1, 2, 5, 6, 7, 13, 300})
    for (int64_t n : {1, 4, 6, 31})
      for (int64_t k : {0, 1, 15, 16, 37, 1024, 1100})
        for (bool biased : {false, true}) {
          int64_t lda = k + 3, ldb = k + 1, ldc = n + 2;
          std::vector<float> a(m * lda), b(n * ldb), bias(n), c(m * ldc, 77.f);
          for (auto* v : {&a, &b, &bias})
            for (float& x : *v) x = real(random);
          GemmNT g{m, n, k, a.data(), lda, b.data(), ldb, biased ? bias.data() : nullptr, c.data(), ldc};
          if (k == 0) continue;
          int64_t half = n / 2 / kGemmColumns * kGemmColumns;
          gemm_nt(g, 0, half);
          gemm_nt(g, half, n);
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              double sum = biased ? bias[j] : 0;
              for (int64_t l = 0; l < k; ++l) sum += double(a[i * lda + l]) * b[j * ldb + l];
              ASSERT_NEAR(c[i * ldc + j], sum, 1e-4) << m << " " << n << " " << k;
            }
            ASSERT_EQ(c[i * ldc + n], 77.f);
          }
        }
}

}  // namespace
}  // namespace braze::runtime
