// Matrix products for weights stored by output feature: c[m][n] = sum over k of a[m][k] * b[n][k] (+ bias[n]).
//
// A BLAS packs the weight on every call, which for a few hundred rows costs as much as the product. Here both operands
// are contiguous along k, so that dot products over vectors of k need no packing; the weight is read from memory once.
#pragma once
#include <cstdint>

#include "base/cpu.h"

namespace braze::runtime {

struct GemmNT {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t lda = 0;  // elements from row to row
  const float* b = nullptr;
  int64_t ldb = 0;
  const float* bias = nullptr;  // n values, or nullptr
  float* c = nullptr;           // overwritten; overlaps no operand
  int64_t ldc = 0;
};

// Whether the shape is one where this is faster than packing, with the instructions of this machine; `few`: the other
// way has not all of these instructions (Target::slow_f32_products).
bool gemm_nt_pays(int64_t m, int64_t n, int64_t k, bool few);
// Columns of c are computed in blocks of this many.
inline constexpr int64_t kGemmColumns = 4;
// Columns [from, to) of c; ranges that do not overlap may run at once. Runs on every machine.
void gemm_nt(const GemmNT& g, int64_t from, int64_t to);

// The same with the instructions of one level; to be asked for only where this machine has them.
bool gemm_nt_has(CpuLevel level);
void gemm_nt_with(CpuLevel level, const GemmNT& g, int64_t from, int64_t to);

// The same where b, bias and c are bfloat16 or float16, which no instruction multiplies: a block of b at a time is made
// float, sums are formed in float and rounded once. `a` is float already.
struct HalfGemmNT {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  int64_t lda = 0;
  const uint16_t* b = nullptr;
  int64_t ldb = 0;
  const uint16_t* bias = nullptr;
  uint16_t* c = nullptr;
  int64_t ldc = 0;
  bool bfloat = true;
};
void gemm_nt_half(const HalfGemmNT& g, int64_t from, int64_t to);
void gemm_nt_half_with(CpuLevel level, const HalfGemmNT& g, int64_t from, int64_t to);
// n halves as floats.
void widen_half(const uint16_t* from, float* to, int64_t n, bool bfloat);

}  // namespace braze::runtime
