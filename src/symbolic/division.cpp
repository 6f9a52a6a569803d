// Floor division, modulo, and divisibility.
#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "symbolic/simplify.h"

namespace braze::sym {

namespace {

// The greatest constant known to divide e for all values of its symbols.
int64_t known_divisor(const ExprArena& arena, Expr e) {
  if (auto c = arena.as_const(e)) return std::abs(*c);
  if (arena.kind(e) == Kind::Mul) {
    int64_t d = 1;
    for (Expr f : arena.operands(e)) d = saturating_mul(d, known_divisor(arena, f));
    return d == kPlusInf ? 1 : d;
  }
  if (arena.kind(e) == Kind::Add || arena.kind(e) == Kind::Min || arena.kind(e) == Kind::Max) {
    int64_t g = 0;
    for (Expr t : arena.operands(e)) g = std::gcd(g, known_divisor(arena, t));
    return g;
  }
  if (arena.kind(e) == Kind::Mod)
    return std::gcd(known_divisor(arena, arena.operands(e)[0]), known_divisor(arena, arena.operands(e)[1]));
  return 1;
}

struct Split {
  Expr multiple, rest;  // e == multiple + rest
};

// Splits the terms of e by whether g divides them for certain; the constant is split as g*q + r with 0 <= r < g.
Split split_by(ExprArena& arena, const LinearSum& s, int64_t g) {
  Expr multiple = arena.constant(s.constant - floor_mod(s.constant, g)),
       rest = arena.constant(floor_mod(s.constant, g));
  for (auto [t, c] : s.terms) {
    Expr term = arena.mul(arena.constant(c), t);
    bool divides = c % g == 0 || saturating_mul(std::abs(c), known_divisor(arena, t)) % g == 0;
    (divides ? multiple : rest) = arena.add(divides ? multiple : rest, term);
  }
  return {multiple, rest};
}

Expr exact_div(ExprArena& arena, Expr e, int64_t g);

Expr exact_div_term(ExprArena& arena, Expr t, int64_t c, int64_t g) {  // c*t / g
  int64_t common = std::gcd(c, g);
  c /= common;
  g /= common;
  return g == 1 ? arena.mul(arena.constant(c), t) : arena.mul(arena.constant(c), exact_div(arena, t, g));
}

// e / g where g is known to divide every term of e.
Expr exact_div(ExprArena& arena, Expr e, int64_t g) {
  if (g == 1) return e;
  if (auto c = arena.as_const(e)) return arena.constant(*c / g);
  Kind k = arena.kind(e);
  if (k == Kind::Add) {
    Expr r = arena.constant(0);
    LinearSum s = linear_sum(arena, e);
    r = arena.constant(s.constant / g);
    for (auto [t, c] : s.terms) r = arena.add(r, exact_div_term(arena, t, c, g));
    return r;
  }
  std::vector<Expr> ops(arena.operands(e).begin(), arena.operands(e).end());
  if (k == Kind::Mul) {
    Expr r = arena.constant(1);
    for (Expr f : ops) {
      int64_t part = std::gcd(known_divisor(arena, f), g);
      r = arena.mul(r, exact_div(arena, f, part));
      g /= part;
    }
    BRAZE_CHECK(g == 1, "exact_div: a factor is left");
    return r;
  }
  BRAZE_CHECK(ops.size() == 2, "exact_div: not a multiple");
  Expr a = exact_div(arena, ops[0], g), b = exact_div(arena, ops[1], g);
  switch (k) {
    case Kind::Min: return arena.min(a, b);
    case Kind::Max: return arena.max(a, b);
    case Kind::Mod: return arena.mod(a, b);
    default: BRAZE_CHECK(false, "exact_div: not a multiple");
  }
}

// Candidate common divisors of b and of some terms of the sum, greatest first.
std::vector<int64_t> step_sizes(const ExprArena& arena, const LinearSum& s, int64_t b) {
  std::vector<int64_t> out;
  for (auto [t, c] : s.terms) {
    int64_t g = std::gcd(b, saturating_mul(std::abs(c), known_divisor(arena, t)));
    if (g > 1) out.push_back(g);
  }
  std::ranges::sort(out, std::greater<>());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

bool inside(Range r, int64_t lo, int64_t hi) { return r.lo >= lo && r.hi <= hi; }

}  // namespace

bool ExprArena::known_multiple(Expr a, int64_t divisor) {
  int64_t d = known_divisor(*this, a);
  return divisor != 0 && d % divisor == 0;  // d == 0: a is the constant 0
}

Expr ExprArena::floordiv(Expr a, Expr b) {
  auto ca = as_const(a), cb = as_const(b);
  if (ca && cb && *cb != 0) return constant(floor_div(*ca, *cb));
  if (cb == 1) return a;
  if (cb == -1) return neg(a);
  if (ca == 0) return a;
  Range rb = range(b);
  if (rb.lo > 0) {
    if (a == b) return constant(1);
    Range ra = range(a);
    if (ra.lo >= 0 && ra.hi < rb.lo) return constant(0);
    if (!cb && !is_const(take_shared_factors(*this, {&a, &b}), 1)) return floordiv(a, b);
  }
  if (cb && *cb > 1) {
    if (kind(a) == Kind::FloorDiv) {  // (x // c) // b = x // (c*b)
      Expr x = operands(a)[0], c = operands(a)[1];
      if (auto cc = as_const(c); cc && *cc > 0) return floordiv(x, constant(checked_mul(*cc, *cb)));
    }
    LinearSum s = linear_sum(*this, a);
    auto [multiple, rest] = split_by(*this, s, *cb);
    if (!is_const(multiple, 0)) return add(exact_div(*this, multiple, *cb), floordiv(rest, b));
    for (int64_t g : step_sizes(*this, s, *cb)) {  // (g*m + r) // (g*k) = m // k for 0 <= r < g
      auto [m, r] = split_by(*this, s, g);
      if (inside(range(r), 0, g - 1)) return floordiv(exact_div(*this, m, g), constant(*cb / g));
    }
  }
  return impl_->intern(Kind::FloorDiv, {a, b});
}

Expr ExprArena::ceildiv(Expr a, Expr b) { return neg(floordiv(neg(a), b)); }

Expr ExprArena::mod(Expr a, Expr b) {
  auto ca = as_const(a), cb = as_const(b);
  if (ca && cb && *cb != 0) return constant(floor_mod(*ca, *cb));
  if (cb == 1 || cb == -1 || ca == 0) return constant(0);
  Range rb = range(b);
  if (rb.lo > 0) {
    if (a == b) return constant(0);
    Range ra = range(a);
    if (ra.lo >= 0 && ra.hi < rb.lo) return a;
    if (!cb)
      if (Expr shared = take_shared_factors(*this, {&a, &b}); !is_const(shared, 1)) return mul(shared, mod(a, b));
  }
  if (cb && *cb > 1) {
    if (kind(a) == Kind::Mod) {  // (x mod c*b) mod b = x mod b
      auto cc = as_const(operands(a)[1]);
      if (cc && *cc > 0 && *cc % *cb == 0) return mod(operands(a)[0], b);
    }
    LinearSum s = linear_sum(*this, a);
    auto [multiple, rest] = split_by(*this, s, *cb);
    if (!is_const(multiple, 0)) return mod(rest, b);
    for (int64_t g : step_sizes(*this, s, *cb)) {  // (g*m + r) mod (g*k) = g*(m mod k) + r for 0 <= r < g
      auto [m, r] = split_by(*this, s, g);
      if (inside(range(r), 0, g - 1)) return add(mul(constant(g), mod(exact_div(*this, m, g), constant(*cb / g))), r);
    }
  }
  return impl_->intern(Kind::Mod, {a, b});
}

}  // namespace braze::sym
