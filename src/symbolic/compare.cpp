// Comparisons, connectives, minimum and maximum, and proofs of them by ranges.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "symbolic/simplify.h"

namespace braze::sym {

namespace {

struct Sides {
  Expr left, right;
};

// d compared with 0, as left compared with right with positive coefficients on both sides.
Sides sides_of(ExprArena& arena, ExprArena::Impl& impl, Expr d) {
  LinearSum s = linear_sum(arena, d), left, right;
  for (auto [t, c] : s.terms) (c > 0 ? left : right).terms.emplace_back(t, std::abs(c));
  (s.constant > 0 ? left : right).constant = std::abs(s.constant);
  return {from_linear(arena, impl, std::move(left)), from_linear(arena, impl, std::move(right))};
}

// a - b without the positive factors that all its terms share, of which its sign is not: strides are products, and of
// their difference, as s0*s1 - s1, the range alone says nothing.
Expr difference(ExprArena& arena, Expr a, Expr b) {
  Expr d = arena.sub(a, b);
  if (!arena.as_const(d)) take_shared_factors(arena, {&d});
  return d;
}

}  // namespace

Expr ExprArena::eq(Expr a, Expr b) {
  if (a == b) return constant(1);
  Expr d = difference(*this, a, b);
  if (auto c = as_const(d)) return constant(*c == 0);
  Range r = range(d);
  if (r.lo > 0 || r.hi < 0) return constant(0);
  LinearSum s = linear_sum(*this, d);
  int64_t g = 0;
  for (auto& t : s.terms) g = std::gcd(g, t.second);
  if (g != 0 && s.constant % g != 0) return constant(0);
  auto [l, m] = sides_of(*this, *impl_, d);
  if (l < m) std::swap(l, m);
  return impl_->intern(Kind::Eq, {l, m});
}

Expr ExprArena::ne(Expr a, Expr b) {
  Expr e = eq(a, b);
  if (auto c = as_const(e)) return constant(!*c);
  return impl_->intern(Kind::Ne, {operands(e)[0], operands(e)[1]});
}

Expr ExprArena::lt(Expr a, Expr b) {
  Expr d = difference(*this, a, b);
  Range r = range(d);
  if (r.hi < 0) return constant(1);
  if (r.lo >= 0) return constant(0);
  auto [l, m] = sides_of(*this, *impl_, d);
  return impl_->intern(Kind::Lt, {l, m});
}

Expr ExprArena::le(Expr a, Expr b) {
  Expr d = difference(*this, a, b);
  Range r = range(d);
  if (r.hi <= 0) return constant(1);
  if (r.lo > 0) return constant(0);
  auto [l, m] = sides_of(*this, *impl_, d);
  return impl_->intern(Kind::Le, {l, m});
}

Expr ExprArena::logical_and(Expr a, Expr b) {
  if (a == b || is_const(b, 1)) return a;
  if (is_const(a, 1)) return b;
  if (is_const(a, 0) || is_const(b, 0)) return constant(0);
  return impl_->intern(Kind::And, {std::min(a, b), std::max(a, b)});
}

Expr ExprArena::logical_or(Expr a, Expr b) {
  if (a == b || is_const(b, 0)) return a;
  if (is_const(a, 0)) return b;
  if (is_const(a, 1) || is_const(b, 1)) return constant(1);
  return impl_->intern(Kind::Or, {std::min(a, b), std::max(a, b)});
}

Expr ExprArena::logical_not(Expr a) {
  if (auto c = as_const(a)) return constant(!*c);
  std::vector<Expr> ops(operands(a).begin(), operands(a).end());
  switch (kind(a)) {
    case Kind::Not: return ops[0];
    case Kind::Eq: return ne(ops[0], ops[1]);
    case Kind::Ne: return eq(ops[0], ops[1]);
    case Kind::Lt: return le(ops[1], ops[0]);
    case Kind::Le: return lt(ops[1], ops[0]);
    default: return impl_->intern(Kind::Not, {a});
  }
}

Expr ExprArena::min(Expr a, Expr b) {
  if (a == b) return a;
  Range d = range(sub(a, b));
  if (d.hi <= 0) return a;
  if (d.lo >= 0) return b;
  return impl_->intern(Kind::Min, {std::min(a, b), std::max(a, b)});
}

Expr ExprArena::max(Expr a, Expr b) {
  if (a == b) return a;
  Range d = range(sub(a, b));
  if (d.lo >= 0) return a;
  if (d.hi <= 0) return b;
  return impl_->intern(Kind::Max, {std::min(a, b), std::max(a, b)});
}

std::optional<bool> ExprArena::known(Expr condition) const {
  if (auto c = as_const(condition)) return *c != 0;
  ExprArena& self = const_cast<ExprArena&>(*this);
  std::vector<Expr> ops(operands(condition).begin(), operands(condition).end());
  auto rebuilt = [&]() -> Expr {
    switch (kind(condition)) {
      case Kind::Eq: return self.eq(ops[0], ops[1]);
      case Kind::Ne: return self.ne(ops[0], ops[1]);
      case Kind::Lt: return self.lt(ops[0], ops[1]);
      case Kind::Le: return self.le(ops[0], ops[1]);
      default: return condition;
    }
  };
  if (kind(condition) == Kind::And || kind(condition) == Kind::Or) {
    auto a = known(ops[0]), b = known(ops[1]);
    bool deciding = kind(condition) == Kind::Or;
    if (a == deciding || b == deciding) return deciding;
    if (a && b) return !deciding;
    return std::nullopt;
  }
  if (kind(condition) == Kind::Not) {
    auto a = known(ops[0]);
    return a ? std::optional(!*a) : std::nullopt;
  }
  if (auto c = as_const(rebuilt())) return *c != 0;
  return std::nullopt;
}

bool ExprArena::known_equal(Expr a, Expr b) { return a == b || is_const(sub(a, b), 0); }

Expr ExprArena::substitute(Expr e, std::span<const std::pair<Expr, Expr>> map) {
  for (auto& [from, to] : map)
    if (from == e) return to;
  if (kind(e) == Kind::Const || kind(e) == Kind::Symbol) return e;
  std::vector<Expr> ops(operands(e).begin(), operands(e).end());
  bool same = true;
  for (Expr& o : ops) {
    Expr n = substitute(o, map);
    same &= n == o;
    o = n;
  }
  // Of two numbers one may be known to be the larger by now.
  if (same && kind(e) != Kind::Min && kind(e) != Kind::Max) return e;
  switch (kind(e)) {
    case Kind::Add: return sum(ops);
    case Kind::Mul: return product(ops);
    case Kind::FloorDiv: return floordiv(ops[0], ops[1]);
    case Kind::Mod: return mod(ops[0], ops[1]);
    case Kind::Min: return min(ops[0], ops[1]);
    case Kind::Max: return max(ops[0], ops[1]);
    case Kind::Eq: return eq(ops[0], ops[1]);
    case Kind::Ne: return ne(ops[0], ops[1]);
    case Kind::Lt: return lt(ops[0], ops[1]);
    case Kind::Le: return le(ops[0], ops[1]);
    case Kind::And: return logical_and(ops[0], ops[1]);
    case Kind::Or: return logical_or(ops[0], ops[1]);
    default: return logical_not(ops[0]);
  }
}

}  // namespace braze::sym
