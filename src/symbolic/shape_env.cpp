#include "symbolic/shape_env.h"

#include <algorithm>

#include "symbolic/simplify.h"

namespace braze::sym {

Expr ShapeEnv::add_symbol(const std::string& name, Range range, int64_t hint) {
  BRAZE_CHECK(range.lo <= hint && hint <= range.hi, "the hint of " + name + " is outside of its range");
  Expr s = arena_->symbol(name, SymbolKind::Size, range);
  hints_.emplace_back(s, hint);
  base_.push_back(s);
  declared_.push_back(range);
  return s;
}

Expr ShapeEnv::duck_symbol(const std::string& name, Range range, int64_t hint, const std::vector<int64_t>& key) {
  std::vector<int64_t> full = key;
  full.push_back(range.lo);
  full.push_back(range.hi);
  auto it = ducks_.find(full);
  if (it == ducks_.end()) it = ducks_.emplace(std::move(full), add_symbol(name, range, hint)).first;
  return it->second;
}

Expr ShapeEnv::add_unbacked(const std::string& name, Range range) { return arena_->symbol(name, SymbolKind::Unbacked, range); }

Expr ShapeEnv::simplify(Expr e) { return replaced_.empty() ? e : arena_->substitute(e, replaced_); }

bool ShapeEnv::has_hint(Expr e) const {
  std::vector<Expr> symbols;
  arena_->collect_symbols(e, symbols);
  return std::ranges::all_of(symbols, [&](Expr s) { return std::ranges::any_of(hints_, [&](auto& h) { return h.first == s; }); });
}

int64_t ShapeEnv::hint(Expr e) const {
  return arena_->evaluate(e, [&](Expr symbol) {
    for (const auto& [s, value] : hints_)
      if (s == symbol) return value;
    throw Undecidable{symbol};
  });
}

Range ShapeEnv::declared(Expr base) const {
  auto it = std::ranges::find(base_, base);
  BRAZE_CHECK(it != base_.end(), "not a base symbol");
  return declared_[static_cast<size_t>(it - base_.begin())];
}

Expr ShapeEnv::over_base(Expr e) {
  if (derived_.empty()) return e;
  std::vector<std::pair<Expr, Expr>> to;
  for (const Derived& d : derived_) to.emplace_back(d.symbol, d.definition);
  return arena_->substitute(e, to);
}

bool ShapeEnv::decide(Expr condition) {
  condition = simplify(condition);
  if (auto known = arena_->known(condition)) return *known;
  if (!has_hint(condition)) throw Undecidable{condition};
  bool holds = hint(condition) != 0;
  Expr fact = holds ? condition : arena_->logical_not(condition);
  // A conjunction is recorded, and learnt from, part by part.
  if (arena_->kind(fact) == Kind::And) {
    std::vector<Expr> parts(arena_->operands(fact).begin(), arena_->operands(fact).end());
    for (Expr p : parts) decide(p);
    return holds;
  }
  if (arena_->kind(fact) == Kind::Not && arena_->kind(arena_->operands(fact)[0]) == Kind::Or) {
    Expr either = arena_->operands(fact)[0];
    std::vector<Expr> parts(arena_->operands(either).begin(), arena_->operands(either).end());
    for (Expr p : parts) decide(p);
    return holds;
  }
  Expr recorded = over_base(fact);
  if (std::ranges::none_of(facts_, [&](const Fact& f) { return f.condition == recorded; }))
    facts_.push_back({recorded, where_ ? where_() : 0});
  learn(fact);
  return holds;
}

const ShapeEnv::Fact* ShapeEnv::specialised(Expr base) {
  Expr now = simplify(base);
  if (!arena_->as_const(now)) return nullptr;
  for (const Fact& f : facts_)
    if (arena_->kind(f.condition) == Kind::Eq && arena_->contains(f.condition, base)) return &f;
  return facts_.empty() ? nullptr : &facts_.back();
}

void ShapeEnv::replace(Expr symbol, Expr by) {
  std::pair<Expr, Expr> one{symbol, by};
  for (auto& [s, e] : replaced_) e = arena_->substitute(e, std::span(&one, 1));
  replaced_.push_back(one);
}

void ShapeEnv::narrow(Expr symbol, Range r) {
  // A derived symbol's range is implied by that of its definition; only base symbols are checked.
  if (std::ranges::find(base_, symbol) == base_.end()) return;
  Range now = arena_->range(symbol);
  Range next{std::max(now.lo, r.lo), std::min(now.hi, r.hi)};
  if (next.lo > next.hi) return;
  if (next.lo == next.hi) return learn_equal(symbol, arena_->constant(next.lo));
  arena_->set_range(symbol, next);
}

void ShapeEnv::learn(Expr fact) {
  Kind k = arena_->kind(fact);
  if (k == Kind::And) {
    std::vector<Expr> parts(arena_->operands(fact).begin(), arena_->operands(fact).end());
    for (Expr p : parts) learn(p);
    return;
  }
  if (k != Kind::Eq && k != Kind::Ne && k != Kind::Lt && k != Kind::Le) return;
  Expr a = arena_->operands(fact)[0], b = arena_->operands(fact)[1];
  if (k == Kind::Eq) {
    for (auto [x, y] : {std::pair{a, b}, std::pair{b, a}})
      if (arena_->kind(x) == Kind::Mod && arena_->is_const(y, 0)) {
        std::vector<Expr> ops(arena_->operands(x).begin(), arena_->operands(x).end());
        return learn_multiple(ops[0], ops[1]);
      }
    return learn_equal(a, b);
  }
  // c*s + rest < 0 with a constant rest narrows s.
  LinearSum s = linear_sum(*arena_, arena_->sub(a, b));
  if (s.terms.size() != 1 || arena_->kind(s.terms[0].first) != Kind::Symbol) return;
  auto [symbol, c] = s.terms[0];
  int64_t rest = s.constant;
  if (k == Kind::Ne) {
    if (rest % c != 0) return;
    Range r = arena_->range(symbol);
    int64_t not_this = -rest / c;
    if (not_this == r.lo) narrow(symbol, {r.lo + 1, kPlusInf});
    else if (not_this == r.hi) narrow(symbol, {kMinusInf, r.hi - 1});
    return;
  }
  if (k == Kind::Lt) rest = checked_add(rest, 1);  // c*s + rest <= 0
  if (c > 0) narrow(symbol, {kMinusInf, floor_div(-rest, c)});
  else narrow(symbol, {-floor_div(-rest, -c), kPlusInf});  // s >= rest / -c, rounded up
}

void ShapeEnv::learn_equal(Expr a, Expr b) {
  LinearSum s = linear_sum(*arena_, arena_->sub(a, b));
  // The newest symbol that the equation determines goes: c*symbol + rest == 0.
  for (size_t i = s.terms.size(); i-- > 0;) {
    auto [symbol, c] = s.terms[i];
    if (arena_->kind(symbol) != Kind::Symbol || arena_->symbol_kind(symbol) == SymbolKind::Unbacked) continue;
    LinearSum rest = s;
    rest.terms.erase(rest.terms.begin() + static_cast<std::ptrdiff_t>(i));
    bool divides = rest.constant % c == 0 && std::ranges::all_of(rest.terms, [&](auto& t) { return t.second % c == 0; });
    if (!divides) continue;
    Expr by = arena_->constant(-(rest.constant / c));
    for (auto [t, k] : rest.terms) by = arena_->add(by, arena_->mul(arena_->constant(-(k / c)), t));
    if (arena_->contains(by, symbol)) continue;
    return replace(symbol, by);
  }
  // Products of positive sizes that are 1 or a prime's multiple say nothing more that is cheap to use.
}

void ShapeEnv::learn_multiple(Expr e, Expr divisor) {
  auto c = arena_->as_const(divisor);
  if (!c || *c <= 1) return;
  LinearSum s = linear_sum(*arena_, e);
  if (s.terms.size() != 1 || arena_->kind(s.terms[0].first) != Kind::Symbol) return;
  auto [symbol, k] = s.terms[0];
  if ((k != 1 && k != -1) || s.constant % *c != 0 || arena_->symbol_kind(symbol) == SymbolKind::Unbacked) return;
  // symbol = c * t
  Range r = arena_->range(symbol);
  auto down = [&](int64_t v) { return v == kPlusInf || v == kMinusInf ? v : floor_div(v, *c); };
  Range range{r.lo == kMinusInf ? r.lo : -down(-r.lo), down(r.hi)};
  if (range.lo > range.hi) return;
  Expr t = arena_->symbol(std::string(arena_->symbol_name(symbol)) + "d" + std::to_string(*c), SymbolKind::Size, range);
  hints_.emplace_back(t, hint(symbol) / *c);
  Expr definition = arena_->floordiv(over_base(symbol), divisor);
  derived_.push_back({t, definition});
  replace(symbol, arena_->mul(divisor, t));
}

}  // namespace braze::sym
