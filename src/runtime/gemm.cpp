#include "runtime/gemm.h"

#include <algorithm>

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12's own undefined vectors
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#endif

namespace braze::runtime {

#if defined(__x86_64__)
namespace {

#define BRAZE_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma,prefer-vector-width=512")))

constexpr int kRows = 6;         // with kGemmColumns: 24 accumulators, 5 operands of 32 registers
constexpr int64_t kDepth = 1024; // of a block of b, 16 KiB: stays in the first cache
constexpr int64_t kHeight = 256; // rows of a, 1 MiB per depth: stay in the second

// The sums of the elements of four vectors.
BRAZE_AVX512 inline __m128 sums_of(__m512 a, __m512 b, __m512 c, __m512 d) {
  __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  __m512 v = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_castps512_ps256(_mm512_shuffle_f32x4(v, v, 0x4e)));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

// One tile of c over `k` elements. `bias` is added, or c where `accumulate`.
template <int R, int C>
BRAZE_AVX512 inline void tile(const float* a, int64_t lda, const float* b, int64_t ldb, int64_t k, float* c, int64_t ldc, const float* bias,
                              bool accumulate) {
  __m512 sum[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int j = 0; j < C; ++j) sum[r][j] = _mm512_setzero_ps();
  int64_t i = 0;
  for (; i + 16 <= k; i += 16) {
    __m512 y[C];
#pragma GCC unroll 8
    for (int j = 0; j < C; ++j) y[j] = _mm512_loadu_ps(b + j * ldb + i);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      __m512 x = _mm512_loadu_ps(a + r * lda + i);
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j) sum[r][j] = _mm512_fmadd_ps(x, y[j], sum[r][j]);
    }
  }
  if (i < k) {
    __mmask16 mask = static_cast<__mmask16>((1u << (k - i)) - 1);
    __m512 y[C];
#pragma GCC unroll 8
    for (int j = 0; j < C; ++j) y[j] = _mm512_maskz_loadu_ps(mask, b + j * ldb + i);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      __m512 x = _mm512_maskz_loadu_ps(mask, a + r * lda + i);
#pragma GCC unroll 8
      for (int j = 0; j < C; ++j) sum[r][j] = _mm512_fmadd_ps(x, y[j], sum[r][j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    __m512 none = _mm512_setzero_ps();
    __m128 s = sums_of(sum[r][0], C > 1 ? sum[r][C > 1 ? 1 : 0] : none, C > 2 ? sum[r][C > 2 ? 2 : 0] : none, C > 3 ? sum[r][C > 3 ? 3 : 0] : none);
    constexpr __mmask8 mask = (1 << C) - 1;
    float* to = c + r * ldc;
    if (accumulate) s = _mm_add_ps(s, _mm_maskz_loadu_ps(mask, to));
    else if (bias) s = _mm_add_ps(s, _mm_maskz_loadu_ps(mask, bias));
    _mm_mask_storeu_ps(to, mask, s);
  }
}

using Tile = void (*)(const float*, int64_t, const float*, int64_t, int64_t, float*, int64_t, const float*, bool);
template <int R>
constexpr Tile kTilesOf[kGemmColumns] = {tile<R, 1>, tile<R, 2>, tile<R, 3>, tile<R, 4>};
constexpr const Tile* kTiles[kRows] = {kTilesOf<1>, kTilesOf<2>, kTilesOf<3>, kTilesOf<4>, kTilesOf<5>, kTilesOf<6>};

BRAZE_AVX512 void columns(const GemmNT& g, int64_t from, int64_t to) {
  for (int64_t k = 0; k < g.k; k += kDepth) {
    int64_t depth = std::min(kDepth, g.k - k);
    for (int64_t m = 0; m < g.m; m += kHeight) {
      int64_t last = std::min(m + kHeight, g.m);
      for (int64_t n = from; n < to; n += kGemmColumns) {
        int64_t width = std::min(kGemmColumns, to - n);
        const float* b = g.b + n * g.ldb + k;
        const float* bias = g.bias ? g.bias + n : nullptr;
        // The next block of b comes in from memory while this one is multiplied.
        int64_t ahead = std::clamp<int64_t>(to - n - kGemmColumns, 0, kGemmColumns);
        const float* next = b + kGemmColumns * g.ldb;
        int64_t tiles = (last - m + kRows - 1) / kRows;
        int64_t lines = (depth + 15) / 16, each = (lines + tiles - 1) / tiles, fetched = 0;
        for (int64_t row = m; row < last; row += kRows) {
          int64_t stop = std::min(fetched + each, lines);
          for (int64_t j = 0; j < ahead; ++j)
            for (int64_t l = fetched; l < stop; ++l) _mm_prefetch(reinterpret_cast<const char*>(next + j * g.ldb + l * 16), _MM_HINT_T1);
          fetched = stop;
          kTiles[std::min<int64_t>(kRows, last - row) - 1][width - 1](g.a + row * g.lda + k, g.lda, b, g.ldb, depth, g.c + row * g.ldc + n, g.ldc,
                                                                        bias, k > 0);
        }
      }
    }
  }
}

bool has_avx512() {
  static const bool has = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                          __builtin_cpu_supports("avx512bw");
  return has;
}

}  // namespace

bool gemm_nt_pays(int64_t m, int64_t n, int64_t k) { return has_avx512() && m >= 3 && m <= 64 && k >= 256 && n >= 8 * kGemmColumns; }

void gemm_nt(const GemmNT& g, int64_t from, int64_t to) { columns(g, from, to); }

#else

bool gemm_nt_pays(int64_t, int64_t, int64_t) { return false; }

void gemm_nt(const GemmNT& g, int64_t from, int64_t to) {
  for (int64_t m = 0; m < g.m; ++m)
    for (int64_t n = from; n < to; ++n) {
      float sum = g.bias ? g.bias[n] : 0;
      for (int64_t k = 0; k < g.k; ++k) sum += g.a[m * g.lda + k] * g.b[n * g.ldb + k];
      g.c[m * g.ldc + n] = sum;
    }
}

#endif

}  // namespace braze::runtime
