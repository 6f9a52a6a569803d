// Index arithmetic of views: exact where sizes are symbols, because it knows every loop variable's extent.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "lower/body.h"

namespace braze::lower {

class Indexing {
 public:
  Indexing(sym::ExprArena& arena, const Symbols& symbols) : arena_(arena), symbols_(symbols) {}

  Expr floordiv(Expr e, Expr d);
  Expr mod(Expr e, Expr d);
  bool below(Expr e, Expr bound);  // provably 0 <= e < bound at every point

  // The element of a tensor of `sizes` with the same row-major position as the element `index` of one of `from` sizes.
  std::vector<Expr> reshape(std::span<const Expr> index, std::span<const Expr> from, std::span<const Expr> sizes);
  // Strides under which a reshaped tensor is a window on the same storage; nullopt where there are none (or no proof).
  std::optional<std::vector<Expr>> reshape_strides(std::span<const Expr> from, std::span<const Expr> strides,
                                                   std::span<const Expr> sizes);
  Expr dot(std::span<const Expr> index, std::span<const Expr> strides, Expr offset);
  bool is_one(Expr e) const {  // ranges may know it where the expression does not show it
    if (arena_.is_const(e, 1)) return true;
    sym::Range r = arena_.range(e);
    return r.lo == 1 && r.hi == 1;
  }
  bool is_zero(Expr e) const { return arena_.is_const(e, 0); }
  // Dimensions from outermost (largest stride) to innermost; those of equal or unknown order stay as they are.
  std::vector<int> by_stride(std::span<const Expr> sizes, std::span<const Expr> strides);

 private:
  struct Split {
    Expr quotient, rest;  // e == quotient * d + rest
  };
  Split split(Expr e, Expr d);
  Expr extreme(Expr e, bool upper);
  sym::ExprArena& arena_;
  const Symbols& symbols_;
};

}  // namespace braze::lower
