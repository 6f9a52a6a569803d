#include "schedule/normalise.h"

#include <algorithm>

#include "loop/analysis.h"
#include "schedule/index.h"

namespace braze::schedule {
namespace {

using loop::LoopOp;
using loop::Nest;
using loop::OpCode;
using loop::ReduceKind;
using loop::Stage;
using loop::ValId;

bool order_matters(const Stage& s) {
  for (const LoopOp& op : s.ops)
    if (op.code == OpCode::Scan || (op.code == OpCode::Reduce && is_index(op.reduce))) return true;
  return false;
}

// The stages whose expressions may contain an axis: all for outer axes, one for a stage's own.
using Stages = std::vector<Stage*>;

void drop_units(sym::ExprArena& arena, std::vector<Axis>& axes, const Stages& stages) {
  Substitution to;
  std::erase_if(axes, [&](const Axis& a) {
    if (!arena.is_const(a.extent, 1)) return false;
    to.push_back({a.var, arena.constant(0)});
    return true;
  });
  for (Stage* s : stages) substitute(arena, *s, to);
}

// Sorts the axes by descending stride in `index`, as far as strides are known to differ.
void sort_axes(sym::ExprArena& arena, std::vector<Axis>& axes, Expr index) {
  auto l = linear(arena, index, axes);
  if (!l) return;
  for (Expr c : l->coefficients)
    if (arena.is_const(c, 0)) return;
  for (size_t i = 1; i < axes.size(); ++i)
    for (size_t k = i; k > 0; --k) {
      Expr a = l->coefficients[k - 1], b = l->coefficients[k];
      auto ca = arena.as_const(a), cb = arena.as_const(b);
      bool less = ca && cb ? *ca < *cb : arena.known(arena.lt(a, b)).value_or(false);
      if (!less) break;
      std::swap(axes[k - 1], axes[k]);
      std::swap(l->coefficients[k - 1], l->coefficients[k]);
    }
}

bool merge_pair(sym::ExprArena& arena, std::vector<Axis>& axes, size_t k, const Stages& stages) {
  const Axis a = axes[k], b = axes[k + 1];
  Expr extent = arena.mul(a.extent, b.extent);
  const Axis whole = fresh_axis(arena, extent);
  auto merged = [&](Expr e) -> std::optional<Expr> {
    bool in_a = arena.contains(e, a.var), in_b = arena.contains(e, b.var);
    if (!in_a && !in_b) return e;
    if (in_a != in_b) return std::nullopt;
    auto fa = arena.affine_in(e, a.var);
    if (!fa || arena.contains(fa->coefficient, b.var)) return std::nullopt;
    auto fb = arena.affine_in(fa->rest, b.var);
    if (!fb || fa->coefficient != arena.mul(fb->coefficient, b.extent)) return std::nullopt;
    return arena.add(arena.mul(fb->coefficient, whole.var), fb->rest);
  };
  Substitution seen;  // accesses of one nest are few expressions
  auto find = [&](Expr e) -> const Expr* {
    for (auto& [from, to] : seen)
      if (from == e) return &to;
    return nullptr;
  };
  for (Stage* s : stages)
    for (const LoopOp& op : s->ops) {
      if (!has_index(op) || find(op.index)) continue;
      auto m = merged(op.index);
      if (!m) return false;
      seen.push_back({op.index, *m});
    }
  for (Stage* s : stages)
    for (LoopOp& op : s->ops)
      if (has_index(op)) op.index = *find(op.index);
  axes[k] = whole;
  axes.erase(axes.begin() + static_cast<long>(k) + 1);
  return true;
}

void merge_axes(sym::ExprArena& arena, std::vector<Axis>& axes, const Stages& stages) {
  for (size_t k = axes.size(); k-- > 1;) merge_pair(arena, axes, k - 1, stages);
}

// A Reduce or a Scan over a stage without axes is its operand.
void drop_trivial_reductions(Nest& n) {
  std::vector<ValId> same(n.values);
  for (uint32_t i = 0; i < n.values; ++i) same[i] = ValId(static_cast<size_t>(i));
  for (Stage& s : n.stages) {
    for (size_t i = 0; i < s.ops.size(); ++i) {
      LoopOp& op = s.ops[i];
      for (ValId& v : op.args)
        if (v.valid()) v = same[v.index];
      if (!loop::accumulates(op.code) || !s.axes.empty()) continue;
      switch (loop::reduce_row(op.reduce).alone) {
        case loop::ReduceAlone::Itself: same[op.result.index] = op.args[0]; break;
        case loop::ReduceAlone::Zero:
          op.code = OpCode::Const;
          op.args = {};
          op.integer = 0;
          break;
        case loop::ReduceAlone::Deviation:
          op.code = OpCode::Sub;
          op.args[1] = op.args[0];
          break;
        case loop::ReduceAlone::Unit: {
          LoopOp none{.code = OpCode::Sub, .dtype = op.dtype, .args = {op.args[0], op.args[0], ValId()}};
          none.result = ValId(static_cast<size_t>(n.values++));
          op.code = OpCode::Exp;
          op.args = {none.result, ValId(), ValId()};
          s.ops.insert(s.ops.begin() + static_cast<long>(i++), none);
          break;
        }
      }
    }
    if (s.axes.empty()) std::erase_if(s.ops, [](const LoopOp& op) { return loop::accumulates(op.code); });
  }
}

// Adjacent stages without axes are one: fusion may give a pointwise nest's stages axes, and then no value could pass
// between them.
void join_plain_stages(Nest& n) {
  for (size_t i = n.stages.size(); i-- > 1;) {
    Stage &a = n.stages[i - 1], &b = n.stages[i];
    if (!a.axes.empty() || !b.axes.empty()) continue;
    a.ops.insert(a.ops.end(), b.ops.begin(), b.ops.end());
    n.stages.erase(n.stages.begin() + static_cast<long>(i));
  }
}

}  // namespace

size_t canonical_names(sym::ExprArena& arena, Nest& n, size_t next_indirect) {
  auto rename = [&](std::vector<Axis>& axes, char prefix, Substitution& to) {
    for (size_t k = 0; k < axes.size(); ++k) {
      Expr v = arena.positional_symbol(prefix, k, axes[k].extent, sym::SymbolKind::LoopVar);
      to.push_back({axes[k].var, v});
      axes[k].var = v;
    }
  };
  Substitution outer;  // of the outer axes, and of Indirect symbols that all later stages see
  rename(n.outer, 'i', outer);
  for (Stage& s : n.stages) {
    Substitution here = outer;
    rename(s.axes, 'r', here);
    for (LoopOp& op : s.ops) {
      if (has_index(op)) op.index = arena.substitute(op.index, here);
      if (op.code != OpCode::Indirect) continue;
      Expr v = arena.positional_symbol('x', next_indirect++, op.bound, sym::SymbolKind::Indirect);
      here.push_back({op.index, v});
      if (s.axes.empty()) outer.push_back({op.index, v});
      op.index = v;
    }
  }
  return next_indirect;
}

void normalise(sym::ExprArena& arena, Nest& n, bool reorder) {
  Stages all;
  for (Stage& s : n.stages) all.push_back(&s);
  drop_units(arena, n.outer, all);
  for (Stage& s : n.stages) drop_units(arena, s.axes, {&s});
  drop_trivial_reductions(n);
  join_plain_stages(n);

  const LoopOp* store = nullptr;
  for (const Stage& s : n.stages)
    for (const LoopOp& op : s.ops)
      if (op.code == OpCode::Store && !store) store = &op;
  if (store && reorder) sort_axes(arena, n.outer, store->index);
  all.clear();
  for (Stage& s : n.stages) all.push_back(&s);
  merge_axes(arena, n.outer, all);
  for (Stage& s : n.stages) {
    if (reorder && !order_matters(s)) {
      bool same_as_before = false;  // stages over the same axes keep the same order
      for (const Stage& t : n.stages) {
        if (&t == &s) break;
        same_as_before |= same_axes(t.axes, s.axes);
      }
      if (!same_as_before && n.stages.size() <= 2)
        for (const LoopOp& op : s.ops)
          if (op.code == OpCode::Load || op.code == OpCode::Store) {
            sort_axes(arena, s.axes, op.index);
            break;
          }
    }
    merge_axes(arena, s.axes, {&s});
  }
  canonical_names(arena, n);
}

}  // namespace braze::schedule
