#include "schedule/mapping.h"

#include <algorithm>

#include "loop/analysis.h"
#include "loop/window.h"
#include "schedule/index.h"
#include "schedule/normalise.h"

namespace braze::schedule {
namespace {

using loop::LoopOp;
using loop::Mapping;
using loop::Nest;
using loop::OpCode;
using loop::Stage;

constexpr int64_t kTaskCost = 32768;  // vector operations that are worth a task: about 10 us
constexpr int kMostLanes = 8;         // of 4 bytes: what more a vector has, memory does not fill
constexpr int kTile = 32;
constexpr int kMemoryCost = 4;  // of a load or store, against an addition

// Accesses of a stage whose index moves by 1, not at all, or otherwise, when an axis moves by 1.
struct Strides {
  int unit = 0, none = 0, other = 0;
};

// Indirect symbols bound in a stage to values that an axis changes. What earlier stages found is the same for all
// points of a stage's own axes, and another one for each outer point.
std::vector<Expr> changed_by(const sym::ExprArena& arena, const Nest& n, const Stage& s, Expr var) {
  const bool by_outer = std::any_of(n.outer.begin(), n.outer.end(), [&](const Axis& a) { return a.var == var; });
  std::vector<char> changed(n.values, by_outer);
  std::vector<Expr> symbols;
  auto has = [&](Expr index) {
    return arena.contains(index, var) ||
           std::any_of(symbols.begin(), symbols.end(), [&](Expr t) { return arena.contains(index, t); });
  };
  for (const LoopOp& op : s.ops) {
    const bool indexed = op.code == OpCode::Load || op.code == OpCode::Index;
    bool here = indexed && has(op.index);
    for (loop::ValId v : op.args)
      if (v.valid()) here = here || changed[v.index];
    if (op.code == OpCode::Indirect && here) symbols.push_back(op.index);
    if (op.result.valid()) changed[op.result.index] = here;
  }
  return symbols;
}

void count(sym::ExprArena& arena, const Nest& n, const Stage& s, Expr var, Strides& c) {
  const std::vector<Expr> symbols = changed_by(arena, n, s, var);
  for (const LoopOp& op : s.ops) {
    if (op.code != OpCode::Load && op.code != OpCode::Store) continue;
    auto f = arena.affine_in(op.index, var);
    const bool found = std::any_of(symbols.begin(), symbols.end(), [&](Expr t) { return arena.contains(op.index, t); });
    if (!f || found || arena.contains(f->coefficient, var))
      ++c.other;
    else if (arena.is_const(f->coefficient, 0))
      ++c.none;
    else if (arena.is_const(f->coefficient, 1))
      ++c.unit;
    else
      ++c.other;
  }
}

// Of one point of a stage.
int64_t ops_cost(const Stage& s) {
  int64_t ops = 0;
  for (const LoopOp& op : s.ops)
    ops += op.code == OpCode::Load || op.code == OpCode::Store ? kMemoryCost : loop::cost(op.code);
  return ops;
}

int64_t point_cost(sym::ExprArena& arena, const Nest& n) {
  double total = 0;
  for (const Stage& s : n.stages) {
    double points = 1;
    for (const Axis& a : s.axes) points *= static_cast<double>(estimate(arena, a.extent));
    total += static_cast<double>(ops_cost(s)) * points;
  }
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(total, 1e15)));
}

// A pointwise nest that reads along another axis than it writes: makes that axis the second to last, so that the last
// two form a tile.
bool tile(sym::ExprArena& arena, Nest& n) {
  if (n.outer.size() < 2) return false;
  const Axis last = n.outer.back();
  if (estimate(arena, last.extent) < 8) return false;
  bool writes_last = false;
  size_t other = SIZE_MAX;
  for (const Stage& s : n.stages)
    for (const LoopOp& op : s.ops) {
      if (op.code != OpCode::Load && op.code != OpCode::Store) continue;
      auto f = arena.affine_in(op.index, last.var);
      if (op.code == OpCode::Store) {
        if (!f || !arena.is_const(f->coefficient, 1)) return false;
        writes_last = true;
        continue;
      }
      if (!f || arena.is_const(f->coefficient, 1) || arena.is_const(f->coefficient, 0)) continue;
      for (size_t k = 0; k + 1 < n.outer.size(); ++k) {
        auto g = arena.affine_in(op.index, n.outer[k].var);
        if (g && arena.is_const(g->coefficient, 1) && estimate(arena, n.outer[k].extent) >= 8) other = k;
      }
    }
  if (!writes_last || other == SIZE_MAX) return false;
  Axis a = n.outer[other];
  n.outer.erase(n.outer.begin() + static_cast<long>(other));
  n.outer.insert(n.outer.end() - 1, a);
  canonical_names(arena, n);
  return true;
}

// Stores whose points may meet in one element, and so must come one after the other.
bool is_ordered(const sym::ExprArena& arena, const Stage& s) {
  if (s.axes.empty()) return false;
  return std::any_of(s.ops.begin(), s.ops.end(), [&](const LoopOp& op) {
    return op.code == OpCode::Store && (op.atomic_add || loop::is_indirect(arena, op.index));
  });
}

// Sums over windows of which neighbours in the result's rows read neighbours: the taps of a column last, so that rows
// that run at once share what they read (codegen/cpu/strips.cpp).
bool put_columns_last(const loop::Program& p, Nest& n) {
  sym::ExprArena& arena = *p.arena;
  constexpr int64_t kFewestPoints = 8;
  if (n.outer.size() < 2 || n.stages.empty() || n.stages[0].axes.size() != 2) return false;
  Strides along;
  count(arena, n, n.stages[0], n.outer.back().var, along);
  if (along.other || !along.unit || estimate(arena, n.outer.back().extent) < kFewestPoints) return false;
  for (int turns = 0; turns < 2; ++turns) {
    if (loop::window_of(p, n)) {
      canonical_names(arena, n);
      return true;
    }
    std::swap(n.stages[0].axes[0], n.stages[0].axes[1]);
  }
  return false;
}

// Rows of fewer elements than a vector has lanes, which are read a few elements apart: many of them are the vector.
bool are_short_rows(const sym::ExprArena& arena, const Nest& n) {
  constexpr int64_t kShort = 8;
  if (n.outer.empty() || estimate(arena, n.outer.back().extent) < kShort) return false;
  for (const Stage& s : n.stages) {
    int64_t elements = 1;
    for (const Axis& a : s.axes) elements *= std::min(arena.as_const(a.extent).value_or(kShort), kShort);
    if (elements >= kShort) return false;
    for (const LoopOp& op : s.ops)
      if (op.code == OpCode::Indirect) return false;
  }
  return true;
}

}  // namespace

const Target& target_of(const Targets& targets, const loop::Program& p, const Nest& n) {
  auto device = loop::device_of(p, n);
  return device ? targets.of(*device) : targets.cpu;  // a nest of nothing
}

// Outer points are counted in vectors where they are the vector.
int64_t task_cost(const Target& target, const Nest& n) {
  return n.mapping.vector == Mapping::Vector::Inner ? kTaskCost * std::min(kMostLanes, target.lanes(4)) : kTaskCost;
}

Expr point_work(sym::ExprArena& arena, const Nest& n) {
  Expr total = arena.constant(0);
  for (const Stage& s : n.stages)
    total = arena.add(total, arena.mul(arena.constant(ops_cost(s)), volume(arena, s.axes)));
  return total;
}

void choose_mapping(const Target& target, const loop::Program& p, Nest& n, const Options& options) {
  sym::ExprArena& arena = *p.arena;
  Mapping& m = n.mapping;
  m = {};
  bool pointwise = true;
  for (const Stage& s : n.stages) pointwise &= s.axes.empty();
  if (pointwise) {
    if (!n.outer.empty()) m.vector = Mapping::Vector::Outer;
    if (options.reordering && tile(arena, n)) m.tile = kTile;
  } else if (!target.is_gpu() && target.strips && put_columns_last(p, n)) {
    m.vector = Mapping::Vector::Outer;
  } else {
    Strides inner, outer;
    double longest = 0;
    for (const Stage& s : n.stages) {
      if (s.axes.empty()) continue;
      count(arena, n, s, s.axes.back().var, inner);
      if (!n.outer.empty()) count(arena, n, s, n.outer.back().var, outer);
      longest = std::max(longest, static_cast<double>(estimate(arena, s.axes.back().extent)));
    }
    bool outer_ok =
        !n.outer.empty() && outer.other == 0 && outer.unit > 0 && estimate(arena, n.outer.back().extent) >= 8;
    bool ordered = std::any_of(n.stages.begin(), n.stages.end(), [&](const Stage& s) { return is_ordered(arena, s); });
    bool inner_ok = inner.unit > 0 && longest >= 4 && !ordered;
    if (!target.is_gpu() && !ordered && are_short_rows(arena, n))
      m.vector = Mapping::Vector::Outer;
    else if (inner_ok && inner.other <= inner.unit && !(outer_ok && inner.other > 0))
      m.vector = Mapping::Vector::Inner;
    else if (outer_ok)
      m.vector = Mapping::Vector::Outer;
    else if (inner_ok)
      m.vector = Mapping::Vector::Inner;
  }
  if (!options.vectors && !target.is_gpu()) m.vector = Mapping::Vector::None, m.tile = 0;
  m.grain = std::max<int64_t>(1, task_cost(target, n) / point_cost(arena, n));
}

std::vector<Mapping> other_mappings(const loop::Program& p, const Nest& n, int threads) {
  sym::ExprArena& arena = *p.arena;
  const Mapping& now = n.mapping;
  std::vector<Mapping> others;
  if (now.vector == Mapping::Vector::None || loop::window_of(p, n)) return others;
  bool pointwise = true, local = false;
  Strides along;  // the last outer axis
  for (const Stage& s : n.stages) {
    pointwise &= s.axes.empty();
    if (!n.outer.empty()) count(arena, n, s, n.outer.back().var, along);
    for (const LoopOp& op : s.ops) {
      if (op.code == OpCode::Scan) return {};
      if (op.code == OpCode::Store && (op.atomic_add || loop::is_indirect(arena, op.index))) return {};
      if (op.code == OpCode::Load || op.code == OpCode::Store)
        local |= p.buffers[op.buffer].kind == loop::BufferKind::Local;
    }
  }
  auto with = [&](Mapping::Vector vector, int tile, int64_t grain) {
    Mapping m = now;
    m.vector = vector, m.tile = tile, m.grain = grain;
    others.push_back(m);
  };
  using Vector = Mapping::Vector;
  if (pointwise) {
    if (n.outer.size() > 1 && along.other > 0) with(now.vector, now.tile ? 0 : kTile, now.grain);
  } else if (now.vector == Vector::Outer) {
    with(Vector::Inner, 0, now.grain);
  } else if (!n.outer.empty() && !local) {
    with(Vector::Outer, 0, now.grain);
  }
  constexpr int64_t kStep = 4;
  const int64_t points = arena.as_const(volume(arena, n.outer)).value_or(1);
  if (threads > 1 && points > 1) {
    if (now.grain > 1) with(now.vector, now.tile, std::max<int64_t>(1, now.grain / kStep));
    if (now.grain < points) with(now.vector, now.tile, now.grain * kStep);
  }
  return others;
}

}  // namespace braze::schedule
