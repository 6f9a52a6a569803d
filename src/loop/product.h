// Nests that are the product of a wide matrix with a narrow one: what a device that multiplies small matrices at once
// computes so.
#pragma once
#include <optional>
#include <vector>

#include "loop/loop.h"

namespace braze::loop {

// One stage with an axis, `k`, which adds up products of two factors of half type: one that is the same for all narrow
// points, one that is the same for all wide ones. Stages without axes may stand around it.
//
// k is a constant multiple of 32.
//
//   for wide, narrow:  sum over k of  a(wide, k) * b(narrow, k)
struct Product {
  uint32_t stage = 0;              // that adds up
  std::vector<Axis> wide, narrow;  // the nest's outer axes, each in their order
  int64_t columns = 1;             // points of the narrow axes
  Axis k;
  DType dtype = DType::BF16;  // BF16 or F16: both factors are such numbers, or integers that it holds exactly
  bool bytes = false;         // a factor is made of them
  struct Term {
    uint32_t op = 0;     // the Reduce
    ValId wide, narrow;  // the factors, before they are widened
  };
  std::vector<Term> terms;  // one for each Reduce of the stage, in their order
};

// nullopt: the nest is something else, or there are more than `most_columns` narrow points, or only one (then a sum is
// as fast, but for bytes, which are widened in pairs).
std::optional<Product> product_of(const Program& program, const Nest& nest, int64_t most_columns);

}  // namespace braze::loop
