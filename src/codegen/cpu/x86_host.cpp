// What kernels call on x86-64: transposes of squares, and half precision where the CPU has no instruction for it.
#include "codegen/cpu/host.h"

#if defined(__x86_64__)
// GCC 12 takes the "undefined" operand inside its own AVX-512 intrinsics for a mistake (bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

// Of the compiler's support library.
extern "C" {
float __extendhfsf2(_Float16);
_Float16 __truncsfhf2(float);
_Float16 __truncdfhf2(double);
}

namespace braze::codegen::cpu {
namespace {

// Four rows of four: the building block within 128-bit parts.
__attribute__((target("avx512f"))) inline void square4(__m512i& a, __m512i& b, __m512i& c, __m512i& d) {
  __m512i ab0 = _mm512_unpacklo_epi32(a, b), ab1 = _mm512_unpackhi_epi32(a, b);
  __m512i cd0 = _mm512_unpacklo_epi32(c, d), cd1 = _mm512_unpackhi_epi32(c, d);
  a = _mm512_unpacklo_epi64(ab0, cd0);
  b = _mm512_unpackhi_epi64(ab0, cd0);
  c = _mm512_unpacklo_epi64(ab1, cd1);
  d = _mm512_unpackhi_epi64(ab1, cd1);
}

__attribute__((target("avx512f"))) void square16(const uint32_t* from, int64_t stride, uint32_t* into, int64_t step) {
  __m512i r[16];
  for (int j = 0; j < 16; ++j) r[j] = _mm512_loadu_si512(from + j * stride);
  for (int g = 0; g < 16; g += 4) square4(r[g], r[g + 1], r[g + 2], r[g + 3]);
  // r[4*g + q] now holds, in part p, rows 4*p + q of columns 4*g .. 4*g + 3: exchange parts between the groups.
  for (int q = 0; q < 4; ++q) {
    __m512i x = _mm512_shuffle_i32x4(r[q], r[4 + q], 0x88), y = _mm512_shuffle_i32x4(r[8 + q], r[12 + q], 0x88);
    __m512i z = _mm512_shuffle_i32x4(r[q], r[4 + q], 0xdd), w = _mm512_shuffle_i32x4(r[8 + q], r[12 + q], 0xdd);
    _mm512_store_si512(into + step * q, _mm512_shuffle_i32x4(x, y, 0x88));
    _mm512_store_si512(into + step * (8 + q), _mm512_shuffle_i32x4(x, y, 0xdd));
    _mm512_store_si512(into + step * (4 + q), _mm512_shuffle_i32x4(z, w, 0x88));
    _mm512_store_si512(into + step * (12 + q), _mm512_shuffle_i32x4(z, w, 0xdd));
  }
}

__attribute__((target("avx2"))) void square8(const uint32_t* from, int64_t stride, uint32_t* into, int64_t step) {
  __m256i r[8];
  for (int j = 0; j < 8; ++j) r[j] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + j * stride));
  for (int g = 0; g < 8; g += 4) {
    __m256i ab0 = _mm256_unpacklo_epi32(r[g], r[g + 1]), ab1 = _mm256_unpackhi_epi32(r[g], r[g + 1]);
    __m256i cd0 = _mm256_unpacklo_epi32(r[g + 2], r[g + 3]), cd1 = _mm256_unpackhi_epi32(r[g + 2], r[g + 3]);
    r[g] = _mm256_unpacklo_epi64(ab0, cd0);
    r[g + 1] = _mm256_unpackhi_epi64(ab0, cd0);
    r[g + 2] = _mm256_unpacklo_epi64(ab1, cd1);
    r[g + 3] = _mm256_unpackhi_epi64(ab1, cd1);
  }
  for (int q = 0; q < 4; ++q) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(into + step * q), _mm256_permute2x128_si256(r[q], r[4 + q], 0x20));
    _mm256_store_si256(reinterpret_cast<__m256i*>(into + step * (4 + q)),
                       _mm256_permute2x128_si256(r[q], r[4 + q], 0x31));
  }
}

// Eight by eight, by the instructions that every x86-64 has.
void half_square8(const uint16_t* from, int64_t stride, uint16_t* into, int64_t step) {
  __m128i r[8], s[8];
  for (int j = 0; j < 8; ++j) r[j] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j * stride));
  // Pairs of rows, then fours, then all eight: each step doubles the run of one column.
  for (int g = 0; g < 4; ++g) {
    s[g] = _mm_unpacklo_epi16(r[2 * g], r[2 * g + 1]);
    s[4 + g] = _mm_unpackhi_epi16(r[2 * g], r[2 * g + 1]);
  }
  for (int half = 0; half < 8; half += 4)
    for (int g = 0; g < 2; ++g) {
      r[half + g] = _mm_unpacklo_epi32(s[half + 2 * g], s[half + 2 * g + 1]);
      r[half + 2 + g] = _mm_unpackhi_epi32(s[half + 2 * g], s[half + 2 * g + 1]);
    }
  for (int q = 0; q < 4; ++q) {
    const __m128i a = r[2 * q], b = r[2 * q + 1];
    _mm_storeu_si128(reinterpret_cast<__m128i*>(into + step * (2 * q)), _mm_unpacklo_epi64(a, b));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(into + step * (2 * q + 1)), _mm_unpackhi_epi64(a, b));
  }
}

void half_square16(const uint16_t* from, int64_t stride, uint16_t* into, int64_t step) {
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 16; j += 8) half_square8(from + j * stride + i, stride, into + i * step + j, step);
}

}  // namespace

TransposeSquare<uint16_t>* transpose_square2(int64_t width) {
  return width == 16 ? half_square16 : width == 8 ? half_square8 : nullptr;
}

TransposeSquare<uint32_t>* transpose_square4(int64_t width) {
  // A width of 16 or 8 lanes says which vectors the machine has.
  static const bool avx2 = __builtin_cpu_supports("avx2");
  return width == 16 ? square16 : width == 8 && avx2 ? square8 : nullptr;
}

Symbols host_symbols() {
  return {{"__extendhfsf2", reinterpret_cast<void*>(__extendhfsf2)},
          {"__truncsfhf2", reinterpret_cast<void*>(__truncsfhf2)},
          {"__truncdfhf2", reinterpret_cast<void*>(__truncdfhf2)}};
}

}  // namespace braze::codegen::cpu
#endif
