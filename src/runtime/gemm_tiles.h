// The inner loops of gemm.cpp, for the vectors of each CPU; a row per level of instructions.
#pragma once
#include <cstdint>
#include <span>

#include "runtime/gemm.h"

namespace braze::runtime {

// One tile of c over `k` elements. `bias` is added, or c where `accumulate`.
using Tile = void (*)(const float* a, int64_t lda, const float* b, int64_t ldb, int64_t k, float* c, int64_t ldc,
                      const float* bias, bool accumulate);

// Halves as floats, and back: `rows` rows of `width` of kGemmColumns sums, with a bias added where there is one.
using WidenHalf = void (*)(const uint16_t* from, float* to, int64_t n, bool bfloat);
using StoreHalf = void (*)(const float* sums, int64_t rows, int64_t width, const float* bias, uint16_t* c, int64_t ldc,
                           bool bfloat);

struct Tiles {
  CpuLevel level;
  bool (*here)();                  // whether this CPU has the instructions
  int rows;                        // of the largest tile
  const Tile (*of)[kGemmColumns];  // by [rows - 1][columns - 1]
  // Of a product that is faster this way than with a packed operand, the rows, at least and at most: of short sums and
  // of such that are long. Most 0: none is.
  int64_t fewest_rows, most_rows, most_rows_of_long;
  WidenHalf widen;
  StoreHalf store;
};

#define BRAZE_TILES(way, r) {way<r, 1>, way<r, 2>, way<r, 3>, way<r, 4>}

// The rows of this process's architecture, the fastest first.
std::span<const Tiles> vector_tiles();

}  // namespace braze::runtime
