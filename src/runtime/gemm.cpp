#include "runtime/gemm.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "runtime/gemm_tiles.h"

namespace braze::runtime {
namespace {

constexpr int64_t kDepth = 1024;  // of a block of b, 16 KiB: stays in the first cache
constexpr int64_t kHeight = 256;  // rows of a, 1 MiB per depth: stay in the second

// Without intrinsics: for machines without AVX2.
template <int R, int C>
void tile_plain(const float* a, int64_t lda, const float* b, int64_t ldb, int64_t k, float* c, int64_t ldc,
                const float* bias, bool accumulate) {
  for (int r = 0; r < R; ++r)
    for (int j = 0; j < C; ++j) {
      constexpr int kParts = 8;  // sums of their own, which a compiler may keep in one vector
      float part[kParts] = {}, sum = 0;
      for (int64_t i = 0; i < k; ++i) part[i % kParts] += a[r * lda + i] * b[j * ldb + i];
      for (float p : part) sum += p;
      float& to = c[r * ldc + j];
      to = accumulate ? to + sum : bias ? bias[j] + sum : sum;
    }
}

constexpr Tile kPlain[][kGemmColumns] = {BRAZE_TILES(tile_plain, 1)};

float wide(uint16_t h, bool bfloat) {
  return bfloat ? std::bit_cast<float>(uint32_t{h} << 16) : static_cast<float>(std::bit_cast<_Float16>(h));
}
uint16_t narrow(float f, bool bfloat) {
  if (!bfloat) return std::bit_cast<uint16_t>(static_cast<_Float16>(f));
  const auto bits = std::bit_cast<uint32_t>(f);
  if (f != f) return static_cast<uint16_t>(bits >> 16 | 0x40);  // a quiet NaN
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
void widen_plain(const uint16_t* from, float* to, int64_t n, bool bfloat) {
  for (int64_t i = 0; i < n; ++i) to[i] = wide(from[i], bfloat);
}
void store_plain(const float* sums, int64_t rows, int64_t width, const float* bias, uint16_t* c, int64_t ldc,
                 bool bfloat) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < width; ++j) {
      const float sum = sums[r * kGemmColumns + j];
      c[r * ldc + j] = narrow(bias ? sum + bias[j] : sum, bfloat);
    }
}

constexpr Tiles kPlainRow{CpuLevel::Baseline, [] { return true; }, 1, kPlain, 0, 0, 0, widen_plain, store_plain};

// nullptr: this architecture has none of that level.
const Tiles* tiles_of(CpuLevel level) {
  if (level == CpuLevel::Baseline) return &kPlainRow;
  for (const Tiles& row : vector_tiles())
    if (row.level == level) return &row;
  return nullptr;
}

void columns(const Tiles& tiles, const GemmNT& g, int64_t from, int64_t to) {
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
        int64_t steps = (last - m + tiles.rows - 1) / tiles.rows;
        int64_t lines = (depth + 15) / 16, each = (lines + steps - 1) / steps, fetched = 0;
        for (int64_t row = m; row < last; row += tiles.rows) {
          int64_t stop = std::min(fetched + each, lines);
          for (int64_t j = 0; j < ahead; ++j)
            for (int64_t l = fetched; l < stop; ++l) __builtin_prefetch(next + j * g.ldb + l * 16, 0, 2);
          fetched = stop;
          tiles.of[std::min<int64_t>(tiles.rows, last - row) - 1][width - 1](
              g.a + row * g.lda + k, g.lda, b, g.ldb, depth, g.c + row * g.ldc + n, g.ldc, bias, k > 0);
        }
      }
    }
  }
}

void half_columns(const Tiles& tiles, const HalfGemmNT& g, int64_t from, int64_t to) {
  alignas(64) float block[kGemmColumns * kDepth], sums[kHeight * kGemmColumns], bias[kGemmColumns];
  for (int64_t n = from; n < to; n += kGemmColumns) {
    const int64_t width = std::min(kGemmColumns, to - n);
    if (g.bias) tiles.widen(g.bias + n, bias, width, g.bfloat);
    for (int64_t m = 0; m < g.m; m += kHeight) {
      const int64_t rows = std::min(kHeight, g.m - m);
      for (int64_t k = 0; k < g.k; k += kDepth) {
        const int64_t depth = std::min(kDepth, g.k - k);
        for (int64_t j = 0; j < width; ++j) tiles.widen(g.b + (n + j) * g.ldb + k, block + j * kDepth, depth, g.bfloat);
        for (int64_t row = 0; row < rows; row += tiles.rows)
          tiles.of[std::min<int64_t>(tiles.rows, rows - row) - 1][width - 1](g.a + (m + row) * g.lda + k, g.lda, block,
                                                                             kDepth, depth, sums + row * kGemmColumns,
                                                                             kGemmColumns, nullptr, k > 0);
      }
      if (g.k == 0) std::fill(sums, sums + rows * kGemmColumns, 0.0f);
      tiles.store(sums, rows, width, g.bias ? bias : nullptr, g.c + m * g.ldc + n, g.ldc, g.bfloat);
    }
  }
}

// The fastest that are both here and allowed.
const Tiles& best_tiles() {
  static const Tiles* best = [] {
    for (const Tiles& row : vector_tiles())
      if (row.here() && includes(forced_cpu().value_or(row.level), row.level)) return &row;
    return &kPlainRow;
  }();
  return *best;
}

}  // namespace

bool gemm_nt_has(CpuLevel level) {
  const Tiles* tiles = tiles_of(level);
  return tiles && tiles->here();
}

bool gemm_nt_pays(int64_t m, int64_t n, int64_t k, bool few) {
  // With more rows packing costs a BLAS little beside the product.
  constexpr int64_t kShort = 256, kLong = 512;
  const Tiles& tiles = best_tiles();
  return m >= (few ? 2 : tiles.fewest_rows) && m <= (k >= kLong ? tiles.most_rows_of_long : tiles.most_rows) &&
         k >= kShort && n >= 8 * kGemmColumns;
}

void gemm_nt_with(CpuLevel level, const GemmNT& g, int64_t from, int64_t to) {
  const Tiles* tiles = tiles_of(level);
  BRAZE_CHECK(tiles, "a product with instructions of another architecture");
  columns(*tiles, g, from, to);
}

void gemm_nt(const GemmNT& g, int64_t from, int64_t to) { columns(best_tiles(), g, from, to); }

void gemm_nt_half_with(CpuLevel level, const HalfGemmNT& g, int64_t from, int64_t to) {
  const Tiles* tiles = tiles_of(level);
  BRAZE_CHECK(tiles, "a product with instructions of another architecture");
  half_columns(*tiles, g, from, to);
}

void gemm_nt_half(const HalfGemmNT& g, int64_t from, int64_t to) { half_columns(best_tiles(), g, from, to); }

void widen_half(const uint16_t* from, float* to, int64_t n, bool bfloat) { best_tiles().widen(from, to, n, bfloat); }

}  // namespace braze::runtime
