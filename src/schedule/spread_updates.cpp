#include "schedule/spread_updates.h"

#include <algorithm>

#include "loop/analysis.h"
#include "schedule/index.h"
#include "schedule/mapping.h"

namespace braze::schedule {
namespace {

using loop::LoopOp;
using loop::OpCode;

// One stage that stores where the data says, or adds, and reads nothing of that.
bool is_update(const loop::Program& p, const loop::Nest& nest) {
  if (nest.stages.size() != 1 || nest.stages[0].axes.empty()) return false;
  bool updates = false;
  for (const LoopOp& op : nest.stages[0].ops) {
    if (loop::accumulates(op.code)) return false;
    if (op.code == OpCode::Store) updates = updates || op.atomic_add || loop::is_indirect(*p.arena, op.index);
  }
  if (!updates) return false;
  std::vector<loop::Access> all = loop::accesses(nest);
  return std::none_of(all.begin(), all.end(), [&](const loop::Access& read) {
    return !read.write && std::any_of(all.begin(), all.end(), [&](const loop::Access& write) {
      return write.write && write.buffer == read.buffer;
    });
  });
}

// Neighbours that are updated one after the other: what they read are runs of whole cache lines, and what they write
// lies in many sets of a cache, however long the rows are. A quarter of a row, so that threads can share it.
constexpr int64_t kFewestTogether = 64, kMostTogether = 256, kParts = 4;

// How many columns of the last outer axis are updated together: those that are read as neighbours, and each goes to a
// place of its own. 0: none are.
int64_t columns_together(sym::ExprArena& arena, const loop::Nest& nest) {
  if (nest.outer.empty()) return 0;
  const loop::Stage& stage = nest.stages[0];
  const loop::Axis& column = nest.outer.back();
  const auto columns = arena.as_const(column.extent);
  bool reads_along = false, places_differ = false;
  for (const LoopOp& op : stage.ops) {
    if (op.code != OpCode::Load) continue;
    auto step = arena.affine_in(op.index, column.var);
    if (!step) return 0;
    const bool by_rows = std::any_of(stage.axes.begin(), stage.axes.end(),
                                     [&](const loop::Axis& a) { return arena.contains(op.index, a.var); });
    if (arena.is_const(step->coefficient, 0) || !by_rows) continue;
    if (!arena.is_const(step->coefficient, 1)) return 0;
    reads_along = true;
    places_differ = places_differ || std::any_of(stage.ops.begin(), stage.ops.end(), [&](const LoopOp& at) {
                      return at.code == OpCode::Indirect && at.args[0] == op.result;
                    });
  }
  if (!columns || !reads_along || !places_differ) return 0;
  const int64_t most = std::min(*columns, std::clamp(*columns / kParts, kFewestTogether, kMostTogether));
  for (int64_t together = most; together > 1; --together)
    if (*columns % together == 0) return together;
  return 0;
}

// Loads whose neighbours along an axis are neighbours in memory.
int64_t reads_along(sym::ExprArena& arena, const loop::Stage& stage, const loop::Axis& axis) {
  return std::ranges::count_if(stage.ops, [&](const LoopOp& op) {
    if (op.code != OpCode::Load) return false;
    auto step = arena.affine_in(op.index, axis.var);
    return step && arena.is_const(step->coefficient, 1);
  });
}

// On a GPU, whose threads are the points: neighbours read what lies side by side.
void put_axes_outside(sym::ExprArena& arena, loop::Nest& nest) {
  loop::Stage& stage = nest.stages[0];
  const bool last =
      nest.outer.empty() || reads_along(arena, stage, stage.axes.back()) > reads_along(arena, stage, nest.outer.back());
  nest.outer.insert(last ? nest.outer.end() : nest.outer.begin(), stage.axes.begin(), stage.axes.end());
  stage.axes.clear();
}

// The order of what is written to one place stays: that of the stage's axes, the columns last.
void put_columns_inside(sym::ExprArena& arena, loop::Nest& nest, int64_t together) {
  const loop::Axis column = nest.outer.back(), inside = fresh_axis(arena, arena.constant(together)),
                   block = fresh_axis(arena, arena.floordiv(column.extent, inside.extent));
  nest.outer.back() = block;
  nest.stages[0].axes.push_back(inside);
  substitute(arena, nest.stages[0], {{column.var, arena.add(arena.mul(block.var, inside.extent), inside.var)}});
}

}  // namespace

void spread_updates(loop::Program& p, const Targets& targets) {
  for (loop::Item& item : p.items) {
    auto* nest = std::get_if<loop::Nest>(&item);
    if (!nest || !is_update(p, *nest)) continue;
    if (target_of(targets, p, *nest).is_gpu()) {
      put_axes_outside(*p.arena, *nest);
    } else if (int64_t together = columns_together(*p.arena, *nest)) {
      put_columns_inside(*p.arena, *nest, together);
    }
  }
}

}  // namespace braze::schedule
