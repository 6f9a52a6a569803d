// Matrix products as kernels in Triton's language, with what comes before and after them.
//
//     out[b, m, n] = after(sum over k of left[b, m, k] * right[b, k, n])
//
// Factors are bf16 or f16. Left and right are elements of memory, or what a pointwise nest computes from memory (casts,
// scales of quantised weights); what comes after is the call's own part (bias, activation) and a pointwise nest that
// reads the product. All of these are loop IR, printed as any nest is (tile.h): no function is known here by its name.
// Sums are of f32, and what comes after is computed from them unrounded.
//
// Two ways. Pointers: a program computes one tile, tails are masked; for all layouts. Descriptors: a program for each
// multiprocessor takes tile after tile, its loads are done by the tensor memory accelerator of compute capability 9.0,
// so that it loads the next tile's first operands while it ends one; for operands with rows of 16-byte multiples.
#pragma once
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/target.h"
#include "codegen/triton/compiler.h"
#include "codegen/triton/tile.h"
#include "loop/loop.h"

namespace braze::codegen::triton {

struct Factor {  // left or right
  loop::BufferId buffer;
  DType dtype = DType::BF16;          // of its elements in the buffer, and of the factors of the product
  int64_t offset = 0;                 // elements
  std::array<int64_t, 3> strides{};   // batch, row, column; of right: batch, k, n
  const loop::Nest* maker = nullptr;  // what computes the buffer's elements, which the kernel does itself
  std::optional<MatrixNest> made;     // over the buffer as a matrix [1, rows, columns]
  bool transposed = false;            // the buffer's rows are the factor's columns
};

struct Product {
  const loop::Program* program = nullptr;
  int64_t batch = 1, m = 1, n = 1, k = 1;
  Factor left, right;
  // The call's own part: one nest whose input 0 is the product and the others are buffers of `program`. nullptr: none.
  const loop::Program* own = nullptr;
  std::optional<MatrixNest> own_nest;
  std::vector<loop::BufferId> own_operands;  // for its inputs 1, 2, ...
  loop::BufferId result;                     // what the call writes
  int64_t result_offset = 0;
  std::array<int64_t, 3> result_strides{};
  bool keeps_result = true;  // somebody besides `after` reads it
  std::optional<MatrixNest> after;
};

struct ProductConfig {
  int m = 128, n = 128, k = 64;  // of a tile
  int warps = 8, stages = 3;
  bool descriptors = false;
  bool specialised = false;   // with descriptors: warps of their own load, `warps` of them multiply, twice
  std::string label() const;  // "128x256x64 w8 s3 tma"
};

// The few that are worth timing, the most promising first, by the product's size and the GPU's multiprocessors.
std::vector<ProductConfig> product_configs(const Product& product, const Target& target);
// Bytes of shared memory that the factors in flight take.
int64_t shared_bytes(const Product& product, const ProductConfig& config);

struct ProductSource {
  Source source;                        // its parameters: pointers, then the error word
  std::vector<loop::BufferId> buffers;  // of the pointers
  int64_t programs = 1;
};
// The kernel is called after its content. Throws Inexpressible.
ProductSource print_product(const Product& product, const ProductConfig& config, const Target& target);

}  // namespace braze::codegen::triton
