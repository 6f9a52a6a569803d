// Tiles in vectors of AVX2 and AVX-512.
#include "runtime/gemm_tiles.h"

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // GCC 12's own undefined vectors
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

namespace braze::runtime {
namespace {

#define BRAZE_AVX512 __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma,prefer-vector-width=512")))
#define BRAZE_AVX2 __attribute__((target("avx2,fma")))

// The sums of the elements of four vectors.
BRAZE_AVX512 inline __m128 sums_of(__m512 a, __m512 b, __m512 c, __m512 d) {
  __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
  __m512 v = _mm512_add_ps(_mm512_shuffle_ps(ab, cd, 0x44), _mm512_shuffle_ps(ab, cd, 0xee));
  __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_castps512_ps256(_mm512_shuffle_f32x4(v, v, 0x4e)));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

template <int R, int C>
BRAZE_AVX512 void tile_avx512(const float* a, int64_t lda, const float* b, int64_t ldb, int64_t k, float* c,
                              int64_t ldc, const float* bias, bool accumulate) {
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
    __m128 s = sums_of(sum[r][0], C > 1 ? sum[r][C > 1 ? 1 : 0] : none, C > 2 ? sum[r][C > 2 ? 2 : 0] : none,
                       C > 3 ? sum[r][C > 3 ? 3 : 0] : none);
    constexpr __mmask8 mask = (1 << C) - 1;
    float* to = c + r * ldc;
    if (accumulate)
      s = _mm_add_ps(s, _mm_maskz_loadu_ps(mask, to));
    else if (bias)
      s = _mm_add_ps(s, _mm_maskz_loadu_ps(mask, bias));
    _mm_mask_storeu_ps(to, mask, s);
  }
}

// The sums of the elements of four vectors.
BRAZE_AVX2 inline __m128 sums_of(__m256 a, __m256 b, __m256 c, __m256 d) {
  __m256 v = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
  return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}

// Lanes below `n` of eight.
BRAZE_AVX2 inline __m256i first_lanes(int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

template <int R, int C>
BRAZE_AVX2 void tile_avx2(const float* a, int64_t lda, const float* b, int64_t ldb, int64_t k, float* c, int64_t ldc,
                          const float* bias, bool accumulate) {
  __m256 sum[R][C];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int j = 0; j < C; ++j) sum[r][j] = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + 8 <= k; i += 8) {
    __m256 x[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) x[r] = _mm256_loadu_ps(a + r * lda + i);
#pragma GCC unroll 8
    for (int j = 0; j < C; ++j) {
      __m256 y = _mm256_loadu_ps(b + j * ldb + i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum[r][j] = _mm256_fmadd_ps(x[r], y, sum[r][j]);
    }
  }
  if (i < k) {
    __m256i mask = first_lanes(k - i);
    __m256 x[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) x[r] = _mm256_maskload_ps(a + r * lda + i, mask);
#pragma GCC unroll 8
    for (int j = 0; j < C; ++j) {
      __m256 y = _mm256_maskload_ps(b + j * ldb + i, mask);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) sum[r][j] = _mm256_fmadd_ps(x[r], y, sum[r][j]);
    }
  }
  __m128i mask = _mm256_castsi256_si128(first_lanes(C));
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    __m256 none = _mm256_setzero_ps();
    __m128 s = sums_of(sum[r][0], C > 1 ? sum[r][C > 1 ? 1 : 0] : none, C > 2 ? sum[r][C > 2 ? 2 : 0] : none,
                       C > 3 ? sum[r][C > 3 ? 3 : 0] : none);
    float* to = c + r * ldc;
    if (accumulate)
      s = _mm_add_ps(s, _mm_maskload_ps(to, mask));
    else if (bias)
      s = _mm_add_ps(s, _mm_maskload_ps(bias, mask));
    _mm_maskstore_ps(to, mask, s);
  }
}

#define BRAZE_HALVES __attribute__((target("avx2,fma,f16c")))

BRAZE_HALVES inline __m256 wide8(__m128i h, bool bfloat) {
  return bfloat ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)) : _mm256_cvtph_ps(h);
}

BRAZE_HALVES void widen_avx2(const uint16_t* from, float* to, int64_t n, bool bfloat) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(to + i, wide8(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)), bfloat));
  if (i == n) return;
  alignas(16) uint16_t rest[8] = {};
  for (int64_t j = i; j < n; ++j) rest[j - i] = from[j];
  _mm256_maskstore_ps(to + i, first_lanes(n - i),
                      wide8(_mm_load_si128(reinterpret_cast<const __m128i*>(rest)), bfloat));
}

// Four floats as halves in the low 64 bits, to the nearest, of two equally near to the even one.
BRAZE_HALVES inline __m128i narrow4(__m128 f, bool bfloat) {
  if (!bfloat) return _mm_cvtps_ph(f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m128i bits = _mm_castps_si128(f), high = _mm_srli_epi32(bits, 16);
  const __m128i odd = _mm_and_si128(high, _mm_set1_epi32(1));
  const __m128i rounded = _mm_srli_epi32(_mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), odd), 16);
  const __m128i quiet = _mm_or_si128(high, _mm_set1_epi32(0x40));
  const __m128i nan = _mm_castps_si128(_mm_cmpunord_ps(f, f));
  return _mm_packus_epi32(_mm_blendv_epi8(rounded, quiet, nan), _mm_setzero_si128());
}

BRAZE_HALVES void store_avx2(const float* sums, int64_t rows, int64_t width, const float* bias, uint16_t* c,
                             int64_t ldc, bool bfloat) {
  const __m128 more = bias ? _mm_maskload_ps(bias, _mm256_castsi256_si128(first_lanes(width))) : _mm_setzero_ps();
  for (int64_t r = 0; r < rows; ++r) {
    __m128 s = _mm_loadu_ps(sums + r * kGemmColumns);
    if (bias) s = _mm_add_ps(s, more);
    alignas(16) uint16_t halves[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(halves), narrow4(s, bfloat));
    for (int64_t j = 0; j < width; ++j) c[r * ldc + j] = halves[j];
  }
}

constexpr Tile kAvx2[][kGemmColumns] = {BRAZE_TILES(tile_avx2, 1), BRAZE_TILES(tile_avx2, 2),
                                        BRAZE_TILES(tile_avx2, 3)};
constexpr Tile kAvx512[][kGemmColumns] = {BRAZE_TILES(tile_avx512, 1), BRAZE_TILES(tile_avx512, 2),
                                          BRAZE_TILES(tile_avx512, 3), BRAZE_TILES(tile_avx512, 4),
                                          BRAZE_TILES(tile_avx512, 5), BRAZE_TILES(tile_avx512, 6)};

#define HAS __builtin_cpu_supports
bool has_avx512() { return HAS("avx512f") && HAS("avx512vl") && HAS("avx512dq") && HAS("avx512bw"); }
bool has_avx2() { return HAS("avx2") && HAS("fma") && HAS("f16c"); }
#undef HAS

// With kGemmColumns: 24 accumulators and 5 operands of 32 registers, or 12 and 4 of 16.
constexpr Tiles kRows[] = {{CpuLevel::Avx512, has_avx512, 6, kAvx512, 5, 64, 96, widen_avx2, store_avx2},
                           {CpuLevel::Avx2, has_avx2, 3, kAvx2, 2, 32, 128, widen_avx2, store_avx2}};

}  // namespace

std::span<const Tiles> vector_tiles() { return kRows; }

}  // namespace braze::runtime
#endif
