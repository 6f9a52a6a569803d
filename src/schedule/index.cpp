#include "schedule/index.h"

#include <algorithm>

namespace braze::schedule {

using loop::LoopOp;
using loop::OpCode;

Expr volume(sym::ExprArena& arena, std::span<const Axis> axes) {
  Expr v = arena.constant(1);
  for (const Axis& a : axes) v = arena.mul(v, a.extent);
  return v;
}

Expr reach(sym::ExprArena& arena, const loop::Buffer& buffer) {
  Expr elements = arena.constant(1);
  for (size_t d = 0; d < buffer.sizes.size(); ++d)
    elements = arena.add(elements, arena.mul(arena.sub(buffer.sizes[d], arena.constant(1)), buffer.strides[d]));
  return elements;
}

int64_t estimate(const sym::ExprArena& arena, Expr e) {
  if (auto c = arena.as_const(e)) return *c;
  switch (arena.kind(e)) {
    case sym::Kind::Symbol: return 256;
    case sym::Kind::Add: {
      int64_t s = 0;
      for (Expr o : arena.operands(e)) s += estimate(arena, o);
      return std::max<int64_t>(s, 1);
    }
    case sym::Kind::Mul: {
      int64_t p = 1;
      for (Expr o : arena.operands(e)) p *= estimate(arena, o);
      return std::max<int64_t>(p, 1);
    }
    case sym::Kind::FloorDiv: {
      auto o = arena.operands(e);
      return std::max<int64_t>(1, estimate(arena, o[0]) / std::max<int64_t>(1, estimate(arena, o[1])));
    }
    default: return 256;
  }
}

std::optional<Linear> linear(sym::ExprArena& arena, Expr index, std::span<const Axis> axes) {
  Linear l;
  l.rest = index;
  l.coefficients.reserve(axes.size());
  for (const Axis& a : axes) {
    if (!arena.contains(l.rest, a.var)) {
      l.coefficients.push_back(arena.constant(0));
      continue;
    }
    auto f = arena.affine_in(l.rest, a.var);
    if (!f) return std::nullopt;
    l.coefficients.push_back(f->coefficient);
    l.rest = f->rest;
  }
  for (Expr c : l.coefficients)
    for (const Axis& a : axes)
      if (arena.contains(c, a.var)) return std::nullopt;
  return l;
}

std::optional<Expr> dense_base(sym::ExprArena& arena, Expr index, std::span<const Axis> axes) {
  auto l = linear(arena, index, axes);
  if (!l) return std::nullopt;
  // Take the axes from stride 1 upwards; each must continue where the last one ended.
  std::vector<char> used(axes.size(), 0);
  Expr stride = arena.constant(1);
  for (size_t n = 0; n < axes.size(); ++n) {
    bool found = false;
    for (size_t k = axes.size(); k-- > 0 && !found;) {
      if (used[k]) continue;
      if (arena.is_const(axes[k].extent, 1) || l->coefficients[k] == stride) {
        if (!arena.is_const(axes[k].extent, 1)) stride = arena.mul(stride, axes[k].extent);
        used[k] = 1;
        found = true;
      }
    }
    if (!found) return std::nullopt;
  }
  return l->rest;
}

bool injective(sym::ExprArena& arena, Expr index, std::span<const Axis> axes) {
  auto l = linear(arena, index, axes);
  if (!l) return false;
  std::vector<size_t> order;
  for (size_t k = 0; k < axes.size(); ++k)
    if (!arena.is_const(axes[k].extent, 1)) order.push_back(k);
  bool all_const = true;
  for (size_t k : order)
    all_const &= arena.as_const(l->coefficients[k]).has_value() && arena.as_const(axes[k].extent).has_value();
  if (all_const) {
    auto c = [&](size_t k) { return *arena.as_const(l->coefficients[k]); };
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return c(a) < c(b); });
    int64_t reach = 0;  // greatest value of the axes so far
    for (size_t k : order) {
      if (c(k) <= reach) return false;
      reach += c(k) * (*arena.as_const(axes[k].extent) - 1);
    }
    return true;
  }
  return dense_base(arena, index, axes).has_value();
}

Axis fresh_axis(sym::ExprArena& arena, Expr extent) {
  return {arena.fresh_symbol('m', sym::SymbolKind::LoopVar, {0, std::max<int64_t>(arena.range(extent).hi - 1, 0)}),
          extent};
}

void substitute(sym::ExprArena& arena, loop::Stage& stage, const Substitution& to) {
  if (to.empty()) return;
  for (LoopOp& op : stage.ops)
    if (op.code == OpCode::Load || op.code == OpCode::Store || op.code == OpCode::Index || op.code == OpCode::Indirect)
      op.index = arena.substitute(op.index, to);
}

bool same_axes(const std::vector<Axis>& a, const std::vector<Axis>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].var != b[i].var || a[i].extent != b[i].extent) return false;
  return true;
}

bool same_axes(const loop::Nest& nest) {
  const loop::Stage* before = nullptr;
  for (const loop::Stage& s : nest.stages) {
    if (s.axes.empty()) continue;
    if (before && !same_axes(before->axes, s.axes)) return false;
    before = &s;
  }
  return true;
}

}  // namespace braze::schedule
