// Sums and products: kept as constant + sum(coefficient * product of factors), terms ordered by id.
#include <algorithm>
#include <map>
#include <numeric>

#include "symbolic/simplify.h"

namespace braze::sym {

LinearSum linear_sum(const ExprArena& arena, Expr e) {
  LinearSum out;
  auto add_term = [&](Expr t) {
    if (auto c = arena.as_const(t)) {
      out.constant = checked_add(out.constant, *c);
      return;
    }
    auto ops = arena.operands(t);
    if (arena.kind(t) == Kind::Mul) {
      if (auto c = arena.as_const(ops[0])) {
        Expr rest = ops.size() == 2 ? ops[1] : const_cast<ExprArena&>(arena).product(ops.subspan(1));
        out.terms.emplace_back(rest, *c);
        return;
      }
    }
    out.terms.emplace_back(t, 1);
  };
  if (arena.kind(e) == Kind::Add)
    for (Expr t : arena.operands(e)) add_term(t);
  else
    add_term(e);
  std::ranges::sort(out.terms, {}, [](auto& t) { return t.first.id; });
  return out;
}

namespace {

int64_t* coefficient_of(LinearSum& s, Expr term) {
  for (auto& t : s.terms)
    if (t.first == term) return &t.second;
  return nullptr;
}

void drop_zero_terms(LinearSum& s) {
  std::erase_if(s.terms, [](auto& t) { return t.second == 0; });
}

// k*(a mod b) + k*b*(a // b)             = k*a
// k*(a mod b) + k*b*((a // b) mod c)     = k*(a mod b*c)      b, c constants
bool join_division(ExprArena& arena, LinearSum& s) {
  for (size_t i = 0; i < s.terms.size(); ++i) {
    auto [term, k] = s.terms[i];
    if (arena.kind(term) != Kind::Mod) continue;
    Expr a = arena.operands(term)[0], b = arena.operands(term)[1];
    auto cb = arena.as_const(b);
    if (!cb) continue;
    for (size_t j = 0; j < s.terms.size(); ++j) {
      auto [other, kb] = s.terms[j];
      if (j == i || kb != k * *cb) continue;
      Expr joined{};
      if (other == arena.floordiv(a, b)) {
        joined = a;
      } else if (arena.kind(other) == Kind::Mod && arena.operands(other)[0] == arena.floordiv(a, b)) {
        auto cc = arena.as_const(arena.operands(other)[1]);
        if (!cc) continue;
        joined = arena.mod(a, arena.constant(checked_mul(*cb, *cc)));
      } else {
        continue;
      }
      s.terms[i].second = s.terms[j].second = 0;
      drop_zero_terms(s);
      LinearSum add = linear_sum(arena, joined);
      s.constant = checked_add(s.constant, checked_mul(k, add.constant));
      for (auto [t, c] : add.terms) {
        if (int64_t* p = coefficient_of(s, t))
          *p = checked_add(*p, checked_mul(k, c));
        else
          s.terms.emplace_back(t, checked_mul(k, c));
      }
      drop_zero_terms(s);
      return true;
    }
  }
  return false;
}

}  // namespace

Expr from_linear(ExprArena& arena, ExprArena::Impl& impl, LinearSum s) {
  drop_zero_terms(s);
  while (s.terms.size() > 1 && join_division(arena, s)) {
  }
  std::ranges::sort(s.terms, {}, [](auto& t) { return t.first.id; });
  std::vector<Expr> ops;
  if (s.constant != 0 || s.terms.empty()) ops.push_back(impl.constant(s.constant));
  for (auto [term, c] : s.terms) {
    if (c == 1) {
      ops.push_back(term);
      continue;
    }
    std::vector<Expr> factors{impl.constant(c)};
    if (arena.kind(term) == Kind::Mul)
      for (Expr f : arena.operands(term)) factors.push_back(f);
    else
      factors.push_back(term);
    ops.push_back(impl.intern(Kind::Mul, std::move(factors)));
  }
  return ops.size() == 1 ? ops[0] : impl.intern(Kind::Add, std::move(ops));
}

Expr take_shared_factors(ExprArena& arena, std::initializer_list<Expr*> expressions) {
  struct Term {
    Expr* of;
    int64_t coefficient;
    std::vector<Expr> factors;  // none: a constant
  };
  std::vector<Term> terms;
  int64_t number = 0;
  for (Expr* e : expressions) {
    const LinearSum s = linear_sum(arena, *e);
    number = std::gcd(number, s.constant);
    if (s.constant != 0 || s.terms.empty()) terms.push_back({e, s.constant, {}});
    for (auto [t, c] : s.terms) {
      number = std::gcd(number, c);
      terms.push_back({e, c, {t}});
      if (arena.kind(t) == Kind::Mul) terms.back().factors.assign(arena.operands(t).begin(), arena.operands(t).end());
    }
  }
  std::vector<Expr> shared;
  for (Expr f : std::vector<Expr>(terms[0].factors)) {
    auto holds = [f](const Term& t) { return std::ranges::find(t.factors, f) != t.factors.end(); };
    if (arena.range(f).lo <= 0 || !std::ranges::all_of(terms, holds)) continue;
    for (Term& t : terms) t.factors.erase(std::ranges::find(t.factors, f));
    shared.push_back(f);
  }
  if (number > 1) shared.push_back(arena.constant(number));
  if (shared.empty()) return arena.constant(1);
  for (Expr* e : expressions) *e = arena.constant(0);
  for (const Term& t : terms) {
    Expr coefficient = arena.constant(t.coefficient / std::max<int64_t>(number, 1));
    *t.of = arena.add(*t.of, arena.mul(coefficient, arena.product(t.factors)));
  }
  return arena.product(shared);
}

namespace {

// a + k*b, merging terms.
LinearSum combine(const ExprArena& arena, Expr a, Expr b, int64_t k) {
  LinearSum x = linear_sum(arena, a), y = linear_sum(arena, b), out;
  out.constant = checked_add(x.constant, checked_mul(k, y.constant));
  size_t i = 0, j = 0;
  while (i < x.terms.size() || j < y.terms.size()) {
    bool left = j == y.terms.size() || (i < x.terms.size() && x.terms[i].first.id <= y.terms[j].first.id);
    bool right = i == x.terms.size() || (j < y.terms.size() && y.terms[j].first.id <= x.terms[i].first.id);
    int64_t c = 0;
    Expr term = left ? x.terms[i].first : y.terms[j].first;
    if (left) c = x.terms[i++].second;
    if (right) c = checked_add(c, checked_mul(k, y.terms[j++].second));
    if (c != 0) out.terms.emplace_back(term, c);
  }
  return out;
}

}  // namespace

Expr ExprArena::add(Expr a, Expr b) {
  auto ca = as_const(a), cb = as_const(b);
  if (ca && cb) return constant(checked_add(*ca, *cb));
  if (ca == 0) return b;
  if (cb == 0) return a;
  return from_linear(*this, *impl_, combine(*this, a, b, 1));
}

Expr ExprArena::sub(Expr a, Expr b) {
  if (a == b) return constant(0);
  if (is_const(b, 0)) return a;
  return from_linear(*this, *impl_, combine(*this, a, b, -1));
}

Expr ExprArena::neg(Expr a) { return mul(constant(-1), a); }

Expr ExprArena::mul(Expr a, Expr b) {
  auto ca = as_const(a), cb = as_const(b);
  if (ca && cb) return constant(checked_mul(*ca, *cb));
  if (ca == 0 || cb == 0) return constant(0);
  if (ca == 1) return b;
  if (cb == 1) return a;
  if (ca || cb) {
    LinearSum s = linear_sum(*this, ca ? b : a);
    int64_t c = ca ? *ca : *cb;
    s.constant = checked_mul(s.constant, c);
    for (auto& t : s.terms) t.second = checked_mul(t.second, c);
    return from_linear(*this, *impl_, std::move(s));
  }
  constexpr size_t kMostTerms = 64;  // sums of products: expand unless that explodes
  LinearSum x = linear_sum(*this, a), y = linear_sum(*this, b);
  bool simple = x.terms.size() == 1 && y.terms.size() == 1 && x.constant == 0 && y.constant == 0;
  if (!simple && x.terms.size() * y.terms.size() <= kMostTerms) {
    Expr sum = constant(checked_mul(x.constant, y.constant));
    for (auto [t, c] : x.terms) sum = add(sum, mul(constant(checked_mul(c, y.constant)), t));
    for (auto [t, c] : y.terms) sum = add(sum, mul(constant(checked_mul(c, x.constant)), t));
    for (auto [t, c] : x.terms)
      for (auto [u, d] : y.terms) sum = add(sum, mul(constant(checked_mul(c, d)), mul(t, u)));
    return sum;
  }
  int64_t c = 1;
  std::vector<Expr> factors;
  auto gather = [&](Expr e) {
    if (kind(e) != Kind::Mul) {
      factors.push_back(e);
      return;
    }
    for (Expr f : operands(e)) {
      if (auto k = as_const(f))
        c = checked_mul(c, *k);
      else
        factors.push_back(f);
    }
  };
  gather(a);
  gather(b);
  std::ranges::sort(factors);
  if (c != 1) factors.insert(factors.begin(), constant(c));
  return impl_->intern(Kind::Mul, std::move(factors));
}

Expr ExprArena::product(std::span<const Expr> terms) {
  Expr r = constant(1);
  for (Expr t : terms) r = mul(r, t);
  return r;
}

Expr ExprArena::sum(std::span<const Expr> terms) {
  Expr r = constant(0);
  for (Expr t : terms) r = add(r, t);
  return r;
}

std::optional<ExprArena::Affine> ExprArena::affine_in(Expr e, Expr symbol) {
  if (!contains(e, symbol)) return Affine{constant(0), e};
  LinearSum s = linear_sum(*this, e);
  Expr coefficient = constant(0), rest = constant(s.constant);
  for (auto [term, c] : s.terms) {
    if (!contains(term, symbol)) {
      rest = add(rest, mul(constant(c), term));
      continue;
    }
    Expr factor = constant(c);
    if (term != symbol) {
      if (kind(term) != Kind::Mul) return std::nullopt;
      int seen = 0;
      for (Expr f : operands(term)) {
        if (f == symbol)
          ++seen;
        else if (contains(f, symbol))
          return std::nullopt;
        else
          factor = mul(factor, f);
      }
      if (seen != 1) return std::nullopt;
    }
    coefficient = add(coefficient, factor);
  }
  return Affine{coefficient, rest};
}

}  // namespace braze::sym
