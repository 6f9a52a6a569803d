// Index expressions as the generators through LLVM emit and ask about them.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "codegen/llvm/vector_builder.h"
#include "symbolic/expr.h"

namespace braze::codegen::ir {

// The value of `e` from its operands' values, all of one integer type or vector; `value` gives them. Of any kind but
// Const and Symbol, and Add and Mul, whose order is the callers' own choice.
llvm::Value* combine_integers(VectorBuilder& b, const sym::ExprArena& arena, sym::Expr e,
                              const std::function<llvm::Value*(sym::Expr)>& value);

// Neighbouring values of one variable that are computed side by side.
struct LaneFacts {
  std::optional<sym::Expr> var;
  int lanes = 1;
  int64_t start = 1;                                                // var starts at a multiple of it
  std::function<bool(sym::Expr)> varies;                            // between lanes, or between what else is in flight
  std::function<std::optional<int64_t>(sym::Expr)> step_of_symbol;  // of one that varies
};
// e(lane) = e(0) + step * lane; nullopt: not known.
std::optional<int64_t> lane_step(sym::ExprArena& arena, sym::Expr e, const LaneFacts& facts);
// How much e differs between a lane and the next at most: never more than `step` up, never more than that down; of sums
// and extremes of ramps, as mirrored places are, and of remainders of ramps, which start again. Where e rises by at
// most `step` and is (W - 1) * step more in the last of W lanes than in the first, it is a ramp.
struct LaneSlope {
  bool up = false, down = false;
};
LaneSlope lane_slope(sym::ExprArena& arena, sym::Expr e, const LaneFacts& facts, int64_t step = 1);
// e(lane) - e(0) of each lane, where these are known and none is below the one before; empty: they are not.
std::vector<int64_t> lane_offsets(sym::ExprArena& arena, sym::Expr e, const LaneFacts& facts);
// Whether e is a multiple of the divisor at lane 0: proved, or else false.
bool aligned_at_first_lane(sym::ExprArena& arena, sym::Expr e, const LaneFacts& facts, int64_t divisor);

}  // namespace braze::codegen::ir
