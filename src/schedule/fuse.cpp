#include "schedule/fuse.h"

#include <algorithm>

#include "loop/analysis.h"
#include "schedule/index.h"
#include "schedule/normalise.h"

namespace braze::schedule {
namespace {

using loop::Access;
using loop::LoopOp;
using loop::Nest;
using loop::OpCode;
using loop::Stage;
using loop::ValId;

std::optional<Expr> divide(sym::ExprArena& arena, Expr a, Expr b) {
  auto ca = arena.as_const(a), cb = arena.as_const(b);
  if (ca && cb) return *cb > 0 && *ca % *cb == 0 ? std::optional<Expr>(arena.constant(*ca / *cb)) : std::nullopt;
  Expr q = arena.floordiv(a, b);
  if (arena.mul(q, b) == a) return q;
  return std::nullopt;
}

// One axis cut in pieces, outermost first.
using Pieces = std::vector<std::vector<Expr>>;

struct Match {
  std::vector<Expr> common;
  Pieces a, b;                    // per axis of each side: the extents it is cut into
  size_t rest_a = 0, rest_b = 0;  // pieces beyond the common ones
};

std::optional<Match> match(sym::ExprArena& arena, const std::vector<Axis>& a, const std::vector<Axis>& b) {
  Match m;
  m.a.resize(a.size());
  m.b.resize(b.size());
  size_t i = 0, j = 0;
  std::optional<Expr> ra, rb;  // what is left of the axis at hand
  while (true) {
    if (!ra && i < a.size()) ra = a[i].extent;
    if (!rb && j < b.size()) rb = b[j].extent;
    if (!ra || !rb) break;
    Expr piece;
    if (*ra == *rb) {
      piece = *ra;
      ra.reset();
      rb.reset();
    } else if (auto q = divide(arena, *ra, *rb)) {
      piece = *rb;
      ra = q;
      rb.reset();
    } else if (auto q2 = divide(arena, *rb, *ra)) {
      piece = *ra;
      rb = q2;
      ra.reset();
    } else {
      return std::nullopt;
    }
    m.common.push_back(piece);
    m.a[i].push_back(piece);
    m.b[j].push_back(piece);
    if (!ra) ++i;
    if (!rb) ++j;
  }
  for (; i < a.size(); ++i, ra.reset(), ++m.rest_a) m.a[i].push_back(ra ? *ra : a[i].extent);
  for (; j < b.size(); ++j, rb.reset(), ++m.rest_b) m.b[j].push_back(rb ? *rb : b[j].extent);
  return m;
}

// Replaces axes by their pieces; the first `keep` pieces become outer axes, the others go to the stages.
void split(sym::ExprArena& arena, Nest& n, const Pieces& pieces, size_t keep) {
  std::vector<Axis> outer, inner;
  Substitution to;
  for (size_t k = 0; k < n.outer.size(); ++k) {
    Expr value = arena.constant(0);
    for (Expr extent : pieces[k]) {
      bool is_outer = outer.size() < keep;
      auto& into = is_outer ? outer : inner;
      into.push_back(fresh_axis(arena, extent));
      value = arena.add(arena.mul(value, extent), into.back().var);
    }
    if (value != n.outer[k].var) to.push_back({n.outer[k].var, value});
  }
  n.outer = std::move(outer);
  for (Stage& s : n.stages) {
    substitute(arena, s, to);
    if (!inner.empty()) s.axes = inner;
  }
}

// Does the outer point that runs both read with `load` only what it wrote with `store`?
bool covered(sym::ExprArena& arena, const Nest& a, const Access& store, const Nest& b, const Access& load,
             std::vector<Expr>& scratch) {
  if (store.atomic || loop::is_indirect(arena, store.index)) return false;
  const auto& sa = a.stages[store.stage].axes;
  if (load.index == store.index && (sa.empty() || same_axes(sa, b.stages[load.stage].axes))) return true;
  auto base = dense_base(arena, store.index, sa);
  if (!base) return false;
  Expr at = arena.sub(load.index, *base);
  scratch.clear();
  arena.collect_symbols(at, scratch);
  for (Expr s : scratch) {
    for (const Axis& o : a.outer)
      if (o.var == s) return false;
  }
  Expr count = volume(arena, sa);
  return arena.range(at).lo >= 0 && arena.known(arena.lt(at, count)).value_or(false);
}

// Whether no point of the one writes where a point of the other does: they write different parts of rows, as the
// operands of a concatenation do, of no more than `longest` elements. The nests have the same outer axes.
bool are_apart(sym::ExprArena& arena, const Nest& a, const Access& x, const Access& y, int64_t longest) {
  if (x.atomic || y.atomic || loop::is_indirect(arena, x.index) || loop::is_indirect(arena, y.index)) return false;
  std::vector<std::pair<Expr, int64_t>> steps;  // of outer axes along which both move alike
  for (const Axis& o : a.outer) {
    auto f = arena.affine_in(x.index, o.var), g = arena.affine_in(y.index, o.var);
    auto step = f && g && f->coefficient == g->coefficient ? arena.as_const(f->coefficient) : std::nullopt;
    if (step && *step > 0) steps.emplace_back(o.var, *step);
  }
  for (const auto& [axis, row] : steps) {
    if (row > longest) continue;
    Substitution start;
    for (const auto& [other, step] : steps)
      if (step % row == 0) start.push_back({other, arena.constant(0)});
    const auto in_x = arena.range(arena.substitute(x.index, start)),
               in_y = arena.range(arena.substitute(y.index, start));
    const auto &low = in_x.lo < in_y.lo ? in_x : in_y, &high = in_x.lo < in_y.lo ? in_y : in_x;
    if (low.hi < high.lo && high.hi - low.lo < row) return true;
  }
  return false;
}

bool legal(sym::ExprArena& arena, const Nest& a, const Nest& b) {
  auto in_a = loop::accesses(a), in_b = loop::accesses(b);
  std::vector<Expr> scratch;
  // Of long rows, writing both parts at once saves nothing, but reading what both read does.
  constexpr int64_t kLongRow = 1 << 12;
  auto longest = [&] {
    const bool read_alike = std::ranges::any_of(in_a, [&](const Access& x) {
      return !x.write && std::ranges::any_of(in_b, [&](const Access& y) { return !y.write && x.buffer == y.buffer; });
    });
    return read_alike ? INT64_MAX : kLongRow;
  };
  for (const Access& y : in_b) {
    bool shared = false, ok = false;
    for (const Access& x : in_a) {
      if (x.buffer != y.buffer || (!x.write && !y.write)) continue;
      if (y.write) {
        if (!x.write || !are_apart(arena, a, x, y, longest())) return false;
        continue;
      }
      shared = true;
      ok = ok || covered(arena, a, x, b, y, scratch);
    }
    if (shared && !ok) return false;
  }
  return true;
}

// Cuts the single stage axis of a pointwise nest as the other nest's stages are cut, so that their stages can run as
// one.
void align_stages(sym::ExprArena& arena, Nest& pointwise, const Nest& like) {
  auto& own = pointwise.stages.front().axes;
  for (const Stage& s : like.stages) {
    if (s.axes.empty()) continue;
    if (same_axes(s.axes, own) || volume(arena, s.axes) != volume(arena, own)) continue;
    auto m = match(arena, own, s.axes);
    if (!m || m->rest_a || m->rest_b || m->common.size() != s.axes.size()) continue;
    Substitution to;
    size_t at = 0;
    for (size_t k = 0; k < own.size(); ++k) {
      Expr value = arena.constant(0);
      for (Expr extent : m->a[k]) value = arena.add(arena.mul(value, extent), s.axes[at++].var);
      to.push_back({own[k].var, value});
    }
    for (Stage& t : pointwise.stages) {
      substitute(arena, t, to);
      t.axes = s.axes;
    }
    return;
  }
}

}  // namespace

bool is_pointwise(const Nest& n) {
  for (const Stage& s : n.stages)
    if (!s.axes.empty()) return false;
  return true;
}

namespace {

// A pointwise nest whose outer axes come in the order of another one's, by the steps that both take in a buffer that
// they touch, and then those that the other lacks. nullopt: they do already, or there is no such buffer.
std::optional<Nest> in_order_of(sym::ExprArena& arena, const Nest& pointwise, const Nest& other) {
  for (const Access& x : loop::accesses(pointwise))
    for (const Access& y : loop::accesses(other)) {
      if (x.buffer != y.buffer) continue;
      std::vector<Axis> left = pointwise.outer, order;
      for (const Axis& o : other.outer) {
        const auto step = arena.affine_in(y.index, o.var);
        const auto same = std::ranges::find_if(left, [&](const Axis& a) {
          const auto own = arena.affine_in(x.index, a.var);
          return a.extent == o.extent && step && own && own->coefficient == step->coefficient;
        });
        if (same == left.end()) break;
        order.push_back(*same);
        left.erase(same);
      }
      if (order.size() != other.outer.size()) continue;
      order.insert(order.end(), left.begin(), left.end());
      const bool moved = !std::ranges::equal(order, pointwise.outer, {}, &Axis::var, &Axis::var);
      if (!moved) return std::nullopt;
      Nest n = pointwise;
      n.outer = std::move(order);
      return n;
    }
  return std::nullopt;
}

// Reductions over a few elements between outer axes: whoever runs with them has the elements at hand.
bool reduces_few(const sym::ExprArena& arena, const Nest& n) {
  constexpr int64_t kFew = 64;
  if (n.outer.empty()) return false;
  return std::ranges::all_of(n.stages, [&](const Stage& s) {
    int64_t elements = 1;
    for (const Axis& a : s.axes) elements *= std::min(arena.as_const(a.extent).value_or(kFew + 1), kFew + 1);
    return elements <= kFew;
  });
}

std::optional<Nest> fuse_as_they_are(sym::ExprArena& arena, const Nest& first, const Nest& second) {
  // What is not to run after a fault does not find one itself (of its own faults it was asked before).
  if (first.commits != second.commits && loop::may_fault(first.commits ? second : first)) return std::nullopt;
  auto m = match(arena, first.outer, second.outer);
  if (!m) return std::nullopt;
  if ((m->rest_a && !is_pointwise(first)) || (m->rest_b && !is_pointwise(second))) return std::nullopt;
  Nest a = first, b = second;
  split(arena, a, m->a, m->common.size());
  split(arena, b, m->b, m->common.size());
  if (m->rest_a) align_stages(arena, a, b);
  if (m->rest_b) align_stages(arena, b, a);
  size_t indirect = canonical_names(arena, a);
  canonical_names(arena, b, indirect);
  if (!legal(arena, a, b)) return std::nullopt;

  for (Stage& s : b.stages) {
    for (LoopOp& op : s.ops) {
      for (int i = 0; i < loop::arity(op.code); ++i) op.args[static_cast<size_t>(i)].index += a.values;
      if (op.result.valid()) op.result.index += a.values;
    }
    a.stages.push_back(std::move(s));
  }
  a.values += b.values;
  a.commits = first.commits || second.commits;
  for (graph::LocId l : b.locs)
    if (std::find(a.locs.begin(), a.locs.end(), l) == a.locs.end()) a.locs.push_back(l);
  return a;
}

}  // namespace

std::optional<Nest> fuse(sym::ExprArena& arena, const Nest& first, const Nest& second) {
  if (auto made = fuse_as_they_are(arena, first, second)) return made;
  const bool last = is_pointwise(second), begins = is_pointwise(first);
  if (last == begins || !reduces_few(arena, last ? first : second)) return std::nullopt;
  auto moved = last ? in_order_of(arena, second, first) : in_order_of(arena, first, second);
  if (!moved) return std::nullopt;
  return last ? fuse_as_they_are(arena, first, *moved) : fuse_as_they_are(arena, *moved, second);
}

}  // namespace braze::schedule
