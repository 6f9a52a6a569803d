// Comparisons, connectives, minimum and maximum, and proofs of them by ranges.
#include <algorithm>
#include <numeric>

#include "symbolic/simplify.h"

namespace braze::sym {

namespace {

struct Sides {
  Expr left, right;
};

// d compared with 0, as left compared with right with positive coefficients on both sides and no common factor.
Sides sides_of(ExprArena& arena, ExprArena::Impl& impl, Expr d, bool exact) {
  LinearSum s = linear_sum(arena, d), left, right;
  int64_t g = 0;
  for (auto& t : s.terms) g = std::gcd(g, t.second);
  if (exact || s.constant % std::max<int64_t>(g, 1) == 0)
    g = std::gcd(g, s.constant);
  else
    g = 1;
  g = std::max<int64_t>(g, 1);
  for (auto [t, c] : s.terms) (c > 0 ? left : right).terms.emplace_back(t, c > 0 ? c / g : -c / g);
  (s.constant > 0 ? left : right).constant = s.constant > 0 ? s.constant / g : -(s.constant / g);
  return {from_linear(arena, impl, std::move(left)), from_linear(arena, impl, std::move(right))};
}

// The factors of a term of a sum.
std::vector<Expr> factors_of(const ExprArena& arena, Expr term) {
  if (arena.kind(term) != Kind::Mul) return {term};
  return {arena.operands(term).begin(), arena.operands(term).end()};
}

// A range for the sign of d: its own, or where that does not tell, of d without the positive factors that all its terms
// share. Strides are products, and of their difference, as s0*s1 - s1, the range alone says nothing.
Range range_of_sign(ExprArena& arena, Expr d) {
  const Range whole = arena.range(d);
  if (whole.lo > 0 || whole.hi < 0 || arena.kind(d) != Kind::Add) return whole;
  const LinearSum sum = linear_sum(arena, d);
  if (sum.constant != 0 || sum.terms.size() < 2) return whole;
  std::vector<std::vector<Expr>> rests;
  for (const auto& [term, c] : sum.terms) rests.push_back(factors_of(arena, term));
  bool any = false;
  for (Expr shared : factors_of(arena, sum.terms[0].first)) {
    std::vector<std::vector<Expr>::iterator> at;
    for (auto& rest : rests) at.push_back(std::ranges::find(rest, shared));
    bool in_all = arena.range(shared).lo > 0;
    for (size_t i = 0; i < rests.size(); ++i) in_all = in_all && at[i] != rests[i].end();
    if (!in_all) continue;
    for (size_t i = 0; i < rests.size(); ++i) rests[i].erase(at[i]);
    any = true;
  }
  if (!any) return whole;
  Expr quotient = arena.constant(0);
  for (size_t i = 0; i < rests.size(); ++i) {
    Expr term = arena.constant(sum.terms[i].second);
    for (Expr f : rests[i]) term = arena.mul(term, f);
    quotient = arena.add(quotient, term);
  }
  return arena.range(quotient);
}

}  // namespace

Expr ExprArena::eq(Expr a, Expr b) {
  if (a == b) return constant(1);
  Expr d = sub(a, b);
  if (auto c = as_const(d)) return constant(*c == 0);
  Range r = range_of_sign(*this, d);
  if (r.lo > 0 || r.hi < 0) return constant(0);
  LinearSum s = linear_sum(*this, d);
  int64_t g = 0;
  for (auto& t : s.terms) g = std::gcd(g, t.second);
  if (g != 0 && s.constant % g != 0) return constant(0);
  auto [l, m] = sides_of(*this, *impl_, d, true);
  if (l < m) std::swap(l, m);
  return impl_->intern(Kind::Eq, {l, m});
}

Expr ExprArena::ne(Expr a, Expr b) {
  Expr e = eq(a, b);
  if (auto c = as_const(e)) return constant(!*c);
  return impl_->intern(Kind::Ne, {operands(e)[0], operands(e)[1]});
}

Expr ExprArena::lt(Expr a, Expr b) {
  Expr d = sub(a, b);
  Range r = range_of_sign(*this, d);
  if (r.hi < 0) return constant(1);
  if (r.lo >= 0) return constant(0);
  auto [l, m] = sides_of(*this, *impl_, d, true);
  return impl_->intern(Kind::Lt, {l, m});
}

Expr ExprArena::le(Expr a, Expr b) {
  Expr d = sub(a, b);
  Range r = range_of_sign(*this, d);
  if (r.hi <= 0) return constant(1);
  if (r.lo > 0) return constant(0);
  auto [l, m] = sides_of(*this, *impl_, d, true);
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
  if (same) return e;
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
