#include "symbolic/shape_env.h"

#include <algorithm>

#include "symbolic/simplify.h"

namespace braze::sym {

Expr ShapeEnv::add_symbol(const std::string& name, Range range, int64_t hint) {
  BRAZE_CHECK(range.lo <= hint && hint <= range.hi, "the hint of " + name + " is outside of its range");
  Expr s = arena_->symbol(name, SymbolKind::Size, range);
  hints_.emplace_back(s, hint);
  arena_->expect(s, hint);
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

Expr ShapeEnv::add_unbacked(Range range, std::string origin) {
  origins_.push_back(std::move(origin));
  unbacked_.push_back(arena_->symbol("u" + std::to_string(unbacked_.size()), SymbolKind::Unbacked, range));
  return unbacked_.back();
}

Expr ShapeEnv::add_unbacked_base(Range range, std::string origin) {
  base_.push_back(add_unbacked(range, std::move(origin)));
  declared_.push_back(range);
  return base_.back();
}

Expr ShapeEnv::simplify(Expr e) { return arena_->substitute(e, replaced_); }

bool ShapeEnv::has_hint(Expr e) const {
  std::vector<Expr> symbols;
  arena_->collect_symbols(e, symbols);
  return std::ranges::all_of(
      symbols, [&](Expr s) { return std::ranges::any_of(hints_, [&](auto& h) { return h.first == s; }); });
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
  if (auto truth = known(condition)) return *truth;
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

void ShapeEnv::pin(Expr e) {
  std::vector<Expr> symbols;
  arena_->collect_symbols(simplify(e), symbols);
  for (Expr s : symbols)
    if (has_hint(s)) decide(arena_->eq(simplify(s), arena_->constant(hint(s))));
}

// The comparison a < b or a <= b as an expression that is at most zero.
static Expr at_most_zero_form(ExprArena& arena, Expr comparison) {
  Expr e = arena.sub(arena.operands(comparison)[0], arena.operands(comparison)[1]);
  return arena.kind(comparison) == Kind::Lt ? arena.add(e, arena.constant(1)) : e;
}

void ShapeEnv::note_assumed(Expr fact) {
  if (!assumed_.insert(fact.id).second) return;
  if (arena_->kind(fact) != Kind::Lt && arena_->kind(fact) != Kind::Le) return;
  Expr bound = at_most_zero_form(*arena_, fact);
  std::vector<Expr> symbols;
  arena_->collect_symbols(bound, symbols);
  for (Expr s : symbols) bounds_of_[s.id].push_back(static_cast<uint32_t>(bounds_.size()));
  bounds_.push_back(bound);
}

std::vector<uint32_t> ShapeEnv::bounds_with_symbols_of(Expr e) const {
  std::vector<Expr> symbols;
  arena_->collect_symbols(e, symbols);
  std::vector<uint32_t> found;
  for (Expr s : symbols)
    if (auto it = bounds_of_.find(s.id); it != bounds_of_.end())
      found.insert(found.end(), it->second.begin(), it->second.end());
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

std::optional<bool> ShapeEnv::assumed(Expr condition) {
  if (assumed_.empty()) return std::nullopt;
  if (assumed_.count(condition.id)) return true;
  if (assumed_.count(arena_->logical_not(condition).id)) return false;
  Kind k = arena_->kind(condition);
  if (k != Kind::Lt && k != Kind::Le && k != Kind::Eq && k != Kind::Ne) return std::nullopt;
  // a + c <= 0 follows from b + c <= 0 where a <= b for all values. Of a b without a symbol of a's, only what a's range
  // says already.
  Expr d = arena_->sub(arena_->operands(condition)[0], arena_->operands(condition)[1]), one = arena_->constant(1),
       zero = arena_->constant(0);
  const std::vector<uint32_t> near = bounds_with_symbols_of(d);
  auto at_most_zero = [&](Expr e) {  // some assumption says so
    return std::ranges::any_of(near, [&](uint32_t b) { return arena_->range(arena_->sub(e, bounds_[b])).hi <= 0; });
  };
  if (k == Kind::Le || k == Kind::Lt) {
    if (at_most_zero(k == Kind::Lt ? arena_->add(d, one) : d)) return true;
    if (at_most_zero(k == Kind::Lt ? arena_->neg(d) : arena_->sub(one, d))) return false;
    return std::nullopt;
  }
  if (at_most_zero(arena_->add(d, one)) || at_most_zero(arena_->sub(one, d))) return k == Kind::Ne;
  return at_most_zero(d) && at_most_zero(arena_->sub(zero, d)) ? std::optional(k == Kind::Eq) : std::nullopt;
}

std::optional<bool> ShapeEnv::known(Expr condition) {
  condition = simplify(condition);
  if (auto truth = arena_->known(condition)) return truth;
  if (unbacked_.empty()) return std::nullopt;
  Kind k = arena_->kind(condition);
  if (k == Kind::And || k == Kind::Or) {
    std::vector<Expr> parts(arena_->operands(condition).begin(), arena_->operands(condition).end());
    auto a = known(parts[0]), b = known(parts[1]);
    bool deciding = k == Kind::Or;
    if (a == deciding || b == deciding) return deciding;
    if (a && b) return !deciding;
  }
  if (k == Kind::Not) {
    auto a = known(arena_->operands(condition)[0]);
    if (a) return !*a;
  }
  if (auto truth = assumed(condition)) return truth;
  if (assumed_equal_.empty()) return std::nullopt;
  Expr with = arena_->substitute(condition, assumed_equal_);
  if (with == condition) return std::nullopt;
  if (auto truth = arena_->known(with)) return truth;
  return assumed(with);
}

std::optional<bool> ShapeEnv::usually(Expr condition) {
  condition = simplify(condition);
  if (auto truth = known(condition)) return truth;
  // Those that an answer can be about: the condition's, and of the assumptions that known() asks.
  std::vector<Expr> symbols;
  for (Expr e : {condition, arena_->substitute(condition, assumed_equal_)}) {
    arena_->collect_symbols(e, symbols);
    for (uint32_t b : bounds_with_symbols_of(e)) arena_->collect_symbols(bounds_[b], symbols);
  }
  std::vector<std::pair<Expr, Range>> before;
  for (Expr u : symbols) {
    if (arena_->symbol_kind(u) != SymbolKind::Unbacked) continue;
    Range r = arena_->range(u);
    if (r.lo < 0 || r.lo >= 2 || r.hi < 2) continue;
    before.emplace_back(u, r);
    arena_->set_range(u, {2, r.hi});
  }
  auto truth = known(condition);
  for (auto& [u, r] : before) arena_->set_range(u, r);
  return truth;
}

std::optional<int64_t> ShapeEnv::assumed_value(Expr e) {
  return arena_->as_const(arena_->substitute(simplify(e), assumed_equal_));
}

void ShapeEnv::assume(Expr condition, const Failure& failure) {
  condition = simplify(condition);
  if (known(condition) == true) return;
  if (!assert_) throw Undecidable{condition};
  std::vector<Expr> ops(arena_->operands(condition).begin(), arena_->operands(condition).end());
  Kind k = arena_->kind(condition);
  if (k == Kind::And) {
    assume(ops[0], failure);
    return assume(ops[1], failure);
  }
  bool comparison = k == Kind::Eq || k == Kind::Ne || k == Kind::Lt || k == Kind::Le;
  assert_(comparison ? Assertion{k, ops[0], ops[1]} : Assertion{Kind::Ne, condition, arena_->constant(0)}, failure);
  if (comparison)
    learn_assumed(condition);
  else if (k != Kind::Const)
    note_assumed(condition);
}

std::string ShapeEnv::explain(Expr e) const {
  std::string out = arena_->print(e);
  std::vector<Expr> symbols;
  arena_->collect_symbols(e, symbols);
  const char* join = ", where ";
  for (Expr s : symbols) {
    auto at = std::ranges::find(unbacked_, s);
    if (at == unbacked_.end() || origins_[static_cast<size_t>(at - unbacked_.begin())].empty()) continue;
    out += join + std::string(arena_->symbol_name(s)) + " is " + origins_[static_cast<size_t>(at - unbacked_.begin())];
    join = " and ";
  }
  return out;
}

void ShapeEnv::learn_assumed(Expr fact) {
  note_assumed(fact);
  Expr a = arena_->operands(fact)[0], b = arena_->operands(fact)[1];
  if (arena_->kind(fact) != Kind::Eq) return learn(fact);  // ranges
  LinearSum s = linear_sum(*arena_, arena_->substitute(arena_->sub(a, b), assumed_equal_));
  for (size_t i = s.terms.size(); i-- > 0;) {
    auto [symbol, c] = s.terms[i];
    if (arena_->kind(symbol) != Kind::Symbol || arena_->symbol_kind(symbol) != SymbolKind::Unbacked ||
        (c != 1 && c != -1))
      continue;
    LinearSum rest = s;
    rest.terms.erase(rest.terms.begin() + static_cast<std::ptrdiff_t>(i));
    Expr by = arena_->constant(-c * rest.constant);
    for (auto [t, k] : rest.terms) by = arena_->add(by, arena_->mul(arena_->constant(-c * k), t));
    if (arena_->contains(by, symbol)) continue;
    std::pair<Expr, Expr> one{symbol, by};
    for (auto& [from, to] : assumed_equal_) to = arena_->substitute(to, std::span(&one, 1));
    assumed_equal_.push_back(one);
    return;
  }
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
  // A derived symbol's range is implied by that of its definition; only base symbols are checked, and unbacked ones.
  bool unbacked = arena_->symbol_kind(symbol) == SymbolKind::Unbacked;
  if (!unbacked && std::ranges::find(base_, symbol) == base_.end()) return;
  Range now = arena_->range(symbol);
  Range next{std::max(now.lo, r.lo), std::min(now.hi, r.hi)};
  if (next.lo > next.hi) return;
  if (next.lo == next.hi && unbacked) return;  // the definition keeps its symbol: see assumed_equal_
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
      if (auto rest = arena_->as_const(y); rest && arena_->kind(x) == Kind::Mod) {
        std::vector<Expr> ops(arena_->operands(x).begin(), arena_->operands(x).end());
        return learn_remainder(ops[0], ops[1], *rest);
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
    if (not_this == r.lo)
      narrow(symbol, {r.lo + 1, kPlusInf});
    else if (not_this == r.hi)
      narrow(symbol, {kMinusInf, r.hi - 1});
    return;
  }
  if (k == Kind::Lt) rest = checked_add(rest, 1);  // c*s + rest <= 0
  if (c > 0)
    narrow(symbol, {kMinusInf, floor_div(-rest, c)});
  else
    narrow(symbol, {-floor_div(-rest, -c), kPlusInf});  // s >= rest / -c, rounded up
}

void ShapeEnv::learn_equal(Expr a, Expr b) {
  LinearSum s = linear_sum(*arena_, arena_->sub(a, b));
  // The newest symbol that the equation determines goes: c*symbol + rest == 0.
  for (size_t i = s.terms.size(); i-- > 0;) {
    auto [symbol, c] = s.terms[i];
    if (arena_->kind(symbol) != Kind::Symbol || arena_->symbol_kind(symbol) == SymbolKind::Unbacked) continue;
    LinearSum rest = s;
    rest.terms.erase(rest.terms.begin() + static_cast<std::ptrdiff_t>(i));
    bool divides =
        rest.constant % c == 0 && std::ranges::all_of(rest.terms, [&](auto& t) { return t.second % c == 0; });
    if (!divides) continue;
    Expr by = arena_->constant(-(rest.constant / c));
    for (auto [t, k] : rest.terms) by = arena_->add(by, arena_->mul(arena_->constant(-(k / c)), t));
    if (arena_->contains(by, symbol)) continue;
    return replace(symbol, by);
  }
}

void ShapeEnv::learn_remainder(Expr e, Expr divisor, int64_t rest) {
  auto c = arena_->as_const(divisor);
  if (!c || *c <= 1 || rest < 0 || rest >= *c) return;
  LinearSum s = linear_sum(*arena_, e);
  if (s.terms.size() != 1 || arena_->kind(s.terms[0].first) != Kind::Symbol) return;
  auto [symbol, k] = s.terms[0];
  if ((k != 1 && k != -1) || arena_->symbol_kind(symbol) == SymbolKind::Unbacked) return;
  // symbol = c * t + first
  int64_t constant = s.constant - floor_div(s.constant, *c) * *c;
  int64_t first = (k == 1 ? rest - constant : constant - rest + *c) % *c;
  if (first < 0) first += *c;
  Range r = arena_->range(symbol);
  Range range{r.lo == kMinusInf ? r.lo : -floor_div(first - r.lo, *c),
              r.hi == kPlusInf ? r.hi : floor_div(r.hi - first, *c)};
  if (range.lo > range.hi) return;
  Expr t = arena_->symbol(std::string(arena_->symbol_name(symbol)) + "d" + std::to_string(*c), SymbolKind::Size, range);
  hints_.emplace_back(t, floor_div(hint(symbol), *c));
  arena_->expect(t, hints_.back().second);
  Expr definition = arena_->floordiv(over_base(symbol), divisor);
  derived_.push_back({t, definition});
  replace(symbol, arena_->add(arena_->mul(divisor, t), arena_->constant(first)));
}

}  // namespace braze::sym
