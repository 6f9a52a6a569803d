#include "codegen/triton/blocks.h"

#include <algorithm>
#include <bit>

#include "schedule/index.h"

namespace braze::codegen::triton {
namespace {

using loop::Axis;
using loop::Nest;
using loop::Stage;
using sym::Expr;

// Fewer programs than this leave multiprocessors idle.
int64_t fewest_programs(const Target& target) { return 2 * target.multiprocessors; }
constexpr int64_t kUnknown = 1 << 20;  // elements of an axis of whose size nothing is expected
constexpr int64_t kMostAtOnce = 16384, kLoop = 4096, kColumnRows = 64;

int64_t estimate(const sym::ExprArena& arena, Expr e) { return arena.likely(e, kUnknown); }

int64_t power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(1, n))));
}

// The most points that the stage can have; INT64_MAX where nothing bounds them.
int64_t most_points(sym::ExprArena& arena, const Stage& stage) {
  return std::max<int64_t>(1, arena.range(schedule::volume(arena, stage.axes)).hi);
}

void points(sym::ExprArena& arena, const Nest& nest, int64_t fewest, Blocks& b) {
  b.way = Blocks::Way::Points;
  Expr all = schedule::volume(arena, nest.outer);
  int64_t n = estimate(arena, all);
  b.x = 1024;
  while (b.x > 128 && n / b.x < fewest) b.x /= 2;
  b.warps = b.x >= 512 ? 4 : b.x / 128;
  b.grid = arena.ceildiv(all, arena.constant(b.x));
}

void tiles(sym::ExprArena& arena, const Nest& nest, Blocks& b) {
  b.way = Blocks::Way::Tiles;
  b.x = b.y = 32;
  b.warps = 4;
  size_t n = nest.outer.size();
  std::vector<Axis> leading(nest.outer.begin(), nest.outer.end() - 2);
  Expr side = arena.constant(b.x);
  b.grid = arena.mul(schedule::volume(arena, leading), arena.mul(arena.ceildiv(nest.outer[n - 2].extent, side),
                                                                 arena.ceildiv(nest.outer[n - 1].extent, side)));
}

void rows(sym::ExprArena& arena, const Nest& nest, int64_t fewest, Blocks& b) {
  b.way = Blocks::Way::Rows;
  Expr all = schedule::volume(arena, nest.outer);
  int64_t outer = estimate(arena, all), longest = 1;
  for (const Stage& s : nest.stages)
    if (!s.axes.empty()) longest = std::max(longest, most_points(arena, s));
  bool columns = nest.mapping.vector == loop::Mapping::Vector::Outer && !nest.outer.empty();
  int64_t r, x;
  if (columns) {
    // Neighbouring outer points are neighbours in memory: as many of them as make whole lines.
    x = std::clamp<int64_t>(power_of_two(estimate(arena, nest.outer.back().extent)), 16, 64);
    b.most = static_cast<int>(kMostAtOnce / 2 / x);
    r = longest <= b.most ? power_of_two(longest) : kColumnRows;
    while (x > 16 && outer / x < fewest) x /= 2;
    while (x * r < 1024 && outer / x >= 2 * fewest) x *= 2;
  } else {
    b.most = kMostAtOnce;
    r = longest <= b.most ? power_of_two(longest) : kLoop;
    x = 1;
    while (x * r < 1024 && outer / x >= 2 * fewest) x *= 2;
  }
  b.x = static_cast<int>(x);
  b.r = static_cast<int>(r);
  b.warps = static_cast<int>(std::clamp<int64_t>(x * r / 512, x * r < 256 ? 1 : 4, 16));
  b.grid = arena.ceildiv(all, arena.constant(b.x));
}

}  // namespace

Blocks choose_blocks(const loop::Program& program, const Nest& nest, const Target& target) {
  sym::ExprArena& arena = *program.arena;
  Blocks b;
  bool pointwise = std::all_of(nest.stages.begin(), nest.stages.end(), [](const Stage& s) { return s.axes.empty(); });
  if (!pointwise)
    rows(arena, nest, fewest_programs(target), b);
  else if (nest.mapping.tile > 0 && nest.outer.size() >= 2)
    tiles(arena, nest, b);
  else
    points(arena, nest, fewest_programs(target), b);
  return b;
}

StageBlock stage_block(sym::ExprArena& arena, const Stage& stage, const Blocks& blocks) {
  int64_t most = most_points(arena, stage);
  if (most > blocks.most) return {blocks.r, false};
  return {static_cast<int>(power_of_two(most)), true};
}

}  // namespace braze::codegen::triton
