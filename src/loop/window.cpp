#include "loop/window.h"

#include <algorithm>

#include "loop/analysis.h"

namespace braze::loop {
namespace {

constexpr int64_t kFarthestStep = 4;  // between the windows of neighbouring points

bool sums_alone(const Stage& s) {
  bool any = false;
  for (const LoopOp& op : s.ops) {
    if (op.code == OpCode::Store || op.code == OpCode::Indirect) return false;
    if (op.code != OpCode::Reduce) continue;
    if (op.reduce != ReduceKind::Sum || op.dtype != DType::F32) return false;
    any = true;
  }
  return any;
}

}  // namespace

bool sums_first(const Program& program, const Nest& nest) {
  if (nest.stages.empty() || nest.stages[0].axes.empty() || !sums_alone(nest.stages[0])) return false;
  for (size_t s = 1; s < nest.stages.size(); ++s)
    if (!nest.stages[s].axes.empty()) return false;
  for (const LoopOp& op : nest.stages[0].ops) {
    if (op.code != OpCode::Load) continue;
    if (is_indirect(*program.arena, op.index)) return false;
    for (size_t s = 1; s < nest.stages.size(); ++s)
      for (const LoopOp& other : nest.stages[s].ops)
        if (other.code == OpCode::Store && other.buffer == op.buffer) return false;
  }
  return true;
}

std::optional<Window> window_of(const Program& program, const Nest& nest) {
  if (nest.outer.size() < 2 || !sums_first(program, nest)) return std::nullopt;
  sym::ExprArena& arena = *program.arena;
  const Stage& stage = nest.stages[0];
  for (const Axis& a : stage.axes)
    if (!arena.as_const(a.extent)) return std::nullopt;
  const Axis& tap = stage.axes.back();
  Window w;
  w.taps = *arena.as_const(tap.extent);
  if (w.taps < 2 || w.taps > kMostTaps) return std::nullopt;
  for (w.strip = 0; w.strip + 1 < nest.outer.size(); ++w.strip) {
    const Axis& axis = nest.outer[w.strip];
    auto points = arena.as_const(axis.extent);
    if (!points || *points < 2) continue;
    w.points = *points;
    for (w.step = 1; w.step <= kFarthestStep && w.step < w.taps; ++w.step) {
      const std::pair<Expr, Expr> next[] = {{axis.var, arena.add(axis.var, arena.constant(1))}};
      const std::pair<Expr, Expr> later[] = {{tap.var, arena.add(tap.var, arena.constant(w.step))}};
      for (const LoopOp& op : stage.ops)
        if (op.code == OpCode::Load && arena.contains(op.index, axis.var) && arena.contains(op.index, tap.var) &&
            arena.substitute(op.index, next) == arena.substitute(op.index, later))
          return w;
    }
  }
  return std::nullopt;
}

}  // namespace braze::loop
