// Questions about index expressions over boxes of axes.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "loop/loop.h"

namespace braze::schedule {

using loop::Axis;
using sym::Expr;
using Substitution = std::vector<std::pair<Expr, Expr>>;

inline bool has_index(const loop::LoopOp& op) {
  return op.code == loop::OpCode::Load || op.code == loop::OpCode::Store || op.code == loop::OpCode::Index;
}

// The product of the extents.
Expr volume(sym::ExprArena& arena, std::span<const Axis> axes);

// Elements from a buffer's first to its last.
Expr reach(sym::ExprArena& arena, const loop::Buffer& buffer);

// The value of an extent or product for cost decisions: exact when constant, else a guess from the range.
int64_t estimate(const sym::ExprArena& arena, Expr e);

// The coefficient of each axis's variable, and what is left; nullopt when the index is not affine in them (with
// coefficients free of them).
struct Linear {
  std::vector<Expr> coefficients;
  Expr rest;
};
std::optional<Linear> linear(sym::ExprArena& arena, Expr index, std::span<const Axis> axes);

// index == base + a bijection from the axes' box onto [0, volume); base is free of the axes' variables.
std::optional<Expr> dense_base(sym::ExprArena& arena, Expr index, std::span<const Axis> axes);

// Different points of the box give different indices (proved; false: not known).
bool injective(sym::ExprArena& arena, Expr index, std::span<const Axis> axes);

// An axis of this extent whose variable no other expression has.
Axis fresh_axis(sym::ExprArena& arena, Expr extent);

// Applies a substitution to every index expression of a stage.
void substitute(sym::ExprArena& arena, loop::Stage& stage, const Substitution& to);

bool same_axes(const std::vector<Axis>& a, const std::vector<Axis>& b);
// All loops of a nest's stages are over the same axes.
bool same_axes(const loop::Nest& nest);

}  // namespace braze::schedule
