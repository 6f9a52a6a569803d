// How a nest is cut into the blocks of a Triton kernel.
#pragma once
#include "base/target.h"
#include "loop/loop.h"

namespace braze::codegen::triton {

struct Blocks {
  enum class Way : uint8_t {
    Points,  // no stage has axes: a program computes `x` points of the flattened outer axes
    Tiles,   // the same in squares of `y` by `x` points of the last two outer axes, for reads that run along the other
             // one
    Rows,    // `x` outer points, and for each of them the points of a stage's axes, at once or `r` at a time
  };
  Way way = Way::Points;
  int x = 1024, y = 1, r = 1;  // powers of two
  int most = 1;                // Rows: a stage of at most this many points is computed at once
  int warps = 4;
  sym::Expr grid;  // number of programs
};

Blocks choose_blocks(const loop::Program& program, const loop::Nest& nest, const Target& target);

// Points of a stage that are computed at once: a power of two. `whole`: that these are all.
struct StageBlock {
  int size = 1;
  bool whole = true;
};
StageBlock stage_block(sym::ExprArena& arena, const loop::Stage& stage, const Blocks& blocks);

}  // namespace braze::codegen::triton
