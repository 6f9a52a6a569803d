#include "symbolic/arena.h"

#include <algorithm>
#include <bit>

#include "base/hash.h"

namespace braze::sym {

int64_t saturating_add(int64_t a, int64_t b) {
  if (a == kMinusInf || b == kMinusInf) return kMinusInf;
  if (a == kPlusInf || b == kPlusInf) return kPlusInf;
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) return a > 0 ? kPlusInf : kMinusInf;
  return r;
}

int64_t saturating_mul(int64_t a, int64_t b) {
  if (a == 0 || b == 0) return 0;
  bool negative = (a < 0) != (b < 0);
  bool infinite = a == kMinusInf || a == kPlusInf || b == kMinusInf || b == kPlusInf;
  int64_t r;
  if (infinite || __builtin_mul_overflow(a, b, &r)) return negative ? kMinusInf : kPlusInf;
  return r;
}

int64_t floor_div(int64_t a, int64_t b) {
  BRAZE_CHECK(b != 0, "division by zero");
  BRAZE_CHECK(!(a == INT64_MIN && b == -1), "overflow");
  int64_t q = a / b;
  return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

int64_t floor_mod(int64_t a, int64_t b) {
  BRAZE_CHECK(b != 0, "division by zero");
  if (b == -1) return 0;
  int64_t r = a % b;
  return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
}

int64_t checked_add(int64_t a, int64_t b) {
  int64_t r;
  BRAZE_CHECK(!__builtin_add_overflow(a, b, &r), "integer overflow in a size");
  return r;
}

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r;
  BRAZE_CHECK(!__builtin_mul_overflow(a, b, &r), "integer overflow in a size");
  return r;
}

Expr ExprArena::Impl::constant(int64_t value) {
  Hasher h;
  h.add(Kind::Const);
  h.add(value);
  uint32_t known =
      interned.find(h.value(), [&](uint32_t i) { return nodes[i].kind == Kind::Const && nodes[i].value == value; });
  if (known != HashIndex::kNone) return Expr{known};
  Node n;
  n.value = value;
  n.range = {value, value};
  n.hash = h.value();
  nodes.push_back(n);
  uint32_t id = static_cast<uint32_t>(nodes.size() - 1);
  interned.insert(n.hash, id);
  return Expr{id};
}

Expr ExprArena::Impl::intern(Kind kind, std::vector<Expr> ops) {
  Hasher h;
  h.add(kind);
  for (Expr e : ops) h.add(e.id);
  uint32_t known = interned.find(h.value(), [&](uint32_t i) {
    const Node& n = nodes[i];
    return n.kind == kind && n.count == ops.size() && n.count && std::ranges::equal(pool[n.first], ops);
  });
  if (known != HashIndex::kNone) return Expr{known};
  Node n;
  n.kind = kind;
  n.first = static_cast<uint32_t>(pool.size());
  n.count = static_cast<uint32_t>(ops.size());
  n.hash = h.value();
  pool.push_back(std::move(ops));
  nodes.push_back(n);
  uint32_t id = static_cast<uint32_t>(nodes.size() - 1);
  interned.insert(n.hash, id);
  return Expr{id};
}

Range ExprArena::Impl::range(Expr e) {
  Node& n = nodes[e.id];
  if (n.kind == Kind::Const || n.kind == Kind::Symbol || n.epoch == epoch) return n.range;
  Range r = compute_range(n);
  n.range = r;
  n.epoch = epoch;
  return r;
}

namespace {

Range hull(std::initializer_list<int64_t> values) { return {std::min(values), std::max(values)}; }

Range multiply(Range a, Range b) {
  return hull(
      {saturating_mul(a.lo, b.lo), saturating_mul(a.lo, b.hi), saturating_mul(a.hi, b.lo), saturating_mul(a.hi, b.hi)});
}

int64_t div_bound(int64_t a, int64_t b) {  // b > 0
  if (a == kMinusInf || a == kPlusInf) return b == kPlusInf ? (a < 0 ? -1 : 0) : a;
  if (b == kPlusInf) return a < 0 ? -1 : 0;
  return floor_div(a, b);
}

Range divide(Range a, Range b) {
  if (b.lo <= 0) return {};
  return hull({div_bound(a.lo, b.lo), div_bound(a.lo, b.hi), div_bound(a.hi, b.lo), div_bound(a.hi, b.hi)});
}

Range modulo(Range a, Range b) {
  if (b.lo <= 0) return {};
  int64_t top = b.hi == kPlusInf ? kPlusInf : b.hi - 1;
  return {0, a.lo >= 0 ? std::min(top, a.hi) : top};
}

}  // namespace

Range ExprArena::Impl::compute_range(const Node& n) {
  const std::vector<Expr>& ops = pool[n.first];
  Range r = range(ops[0]);
  switch (n.kind) {
    case Kind::Add:
      for (size_t i = 1; i < ops.size(); ++i) {
        Range b = range(ops[i]);
        r = {saturating_add(r.lo, b.lo), b.hi == kPlusInf || r.hi == kPlusInf ? kPlusInf : saturating_add(r.hi, b.hi)};
      }
      return r;
    case Kind::Mul:
      for (size_t i = 1; i < ops.size(); ++i) r = multiply(r, range(ops[i]));
      return r;
    case Kind::FloorDiv: return divide(r, range(ops[1]));
    case Kind::Mod: return modulo(r, range(ops[1]));
    case Kind::Min: {
      Range b = range(ops[1]);
      return {std::min(r.lo, b.lo), std::min(r.hi, b.hi)};
    }
    case Kind::Max: {
      Range b = range(ops[1]);
      return {std::max(r.lo, b.lo), std::max(r.hi, b.hi)};
    }
    default: return {0, 1};
  }
}

// ---- plain queries ----

ExprArena::ExprArena() : impl_(std::make_unique<Impl>()) {
  constant(0);  // Expr{} is zero
  constant(1);
}
ExprArena::~ExprArena() = default;

Expr ExprArena::constant(int64_t value) { return impl_->constant(value); }

Expr ExprArena::symbol(std::string name, SymbolKind kind, Range range) {
  BRAZE_CHECK(!impl_->by_name.contains(name), "symbol " + name + " exists");
  BRAZE_CHECK(range.lo <= range.hi, "symbol " + name + " has an empty range");
  Impl::Node n;
  n.kind = Kind::Symbol;
  n.symbol_kind = kind;
  n.range = range;
  n.name = static_cast<uint32_t>(impl_->names.size());
  impl_->names.push_back(name);
  impl_->nodes.push_back(n);
  Expr e{static_cast<uint32_t>(impl_->nodes.size() - 1)};
  impl_->by_name.emplace(std::move(name), e);
  return e;
}

std::optional<Expr> ExprArena::find_symbol(std::string_view name) const {
  auto it = impl_->by_name.find(std::string(name));
  return it == impl_->by_name.end() ? std::nullopt : std::optional(it->second);
}

Expr ExprArena::fresh_symbol(char prefix, SymbolKind kind, Range range) {
  std::string name;
  do name = prefix + ("_" + std::to_string(impl_->fresh++));
  while (find_symbol(name));
  return symbol(std::move(name), kind, range);
}

Expr ExprArena::positional_symbol(char prefix, size_t position, Expr extent, SymbolKind kind) {
  auto [it, fresh] = impl_->positional.try_emplace({prefix, position, extent.id, kind});
  if (!fresh) return it->second;
  // The name is for readers: a free one that tells position and extent.
  auto size = as_const(extent);
  std::string name = prefix + std::to_string(position) + '_' +
                     (size                                 ? std::to_string(*size)
                      : this->kind(extent) == Kind::Symbol ? std::string(symbol_name(extent))
                                                           : "e" + std::to_string(extent.id));
  while (find_symbol(name)) name += '_';
  int64_t hi = range(extent).hi;
  return it->second = symbol(std::move(name), kind, {0, hi == INT64_MAX ? hi : std::max<int64_t>(hi - 1, 0)});
}

Kind ExprArena::kind(Expr e) const { return impl_->at(e).kind; }
std::span<const Expr> ExprArena::operands(Expr e) const { return impl_->operands(e); }

std::optional<int64_t> ExprArena::as_const(Expr e) const {
  const Impl::Node& n = impl_->at(e);
  return n.kind == Kind::Const ? std::optional(n.value) : std::nullopt;
}

std::string_view ExprArena::symbol_name(Expr symbol) const {
  const Impl::Node& n = impl_->at(symbol);
  BRAZE_CHECK(n.kind == Kind::Symbol, "not a symbol");
  return impl_->names[n.name];
}

SymbolKind ExprArena::symbol_kind(Expr symbol) const { return impl_->at(symbol).symbol_kind; }
Range ExprArena::range(Expr e) const { return impl_->range(e); }

void ExprArena::set_range(Expr symbol, Range range) {
  BRAZE_CHECK(kind(symbol) == Kind::Symbol && range.lo <= range.hi, "set_range");
  Impl::Node& n = impl_->nodes[symbol.id];
  if (n.range == range) return;
  n.range = range;
  ++impl_->epoch;
}

bool ExprArena::contains(Expr e, Expr symbol) const {
  if (e == symbol) return true;
  for (Expr o : operands(e))
    if (contains(o, symbol)) return true;
  return false;
}

bool ExprArena::depends_on_data(Expr e) const {
  if (kind(e) == Kind::Symbol) return symbol_kind(e) == SymbolKind::Unbacked;
  return std::ranges::any_of(operands(e), [&](Expr o) { return depends_on_data(o); });
}

void ExprArena::collect_symbols(Expr e, std::vector<Expr>& into) const {
  if (kind(e) == Kind::Symbol) {
    if (std::ranges::find(into, e) == into.end()) into.push_back(e);
    return;
  }
  for (Expr o : operands(e)) collect_symbols(o, into);
}

void ExprArena::expect(Expr symbol, int64_t value) {
  impl_->expected[symbol.id] =
      static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::clamp<int64_t>(value, 1, int64_t{1} << 50))));
}

std::optional<int64_t> ExprArena::expected(Expr e) const {
  std::vector<Expr> symbols;
  collect_symbols(e, symbols);
  for (Expr s : symbols)
    if (!impl_->expected.count(s.id)) return std::nullopt;
  return evaluate(e, [&](Expr s) { return impl_->expected.at(s.id); });
}

int64_t ExprArena::likely(Expr e, int64_t unknown) const {
  if (auto c = as_const(e)) return *c;
  Range r = range(e);
  return std::clamp<int64_t>(expected(e).value_or(unknown), r.lo, std::max(r.lo, r.hi));
}

int64_t ExprArena::evaluate(Expr e, const Env& env) const {
  auto ops = operands(e);
  auto value = [&](size_t i) { return evaluate(ops[i], env); };
  switch (kind(e)) {
    case Kind::Const: return impl_->at(e).value;
    case Kind::Symbol: return env(e);
    case Kind::Add: {
      int64_t r = 0;
      for (size_t i = 0; i < ops.size(); ++i) r = checked_add(r, value(i));
      return r;
    }
    case Kind::Mul: {
      int64_t r = 1;
      for (size_t i = 0; i < ops.size(); ++i) r = checked_mul(r, value(i));
      return r;
    }
    case Kind::FloorDiv: return floor_div(value(0), value(1));
    case Kind::Mod: return floor_mod(value(0), value(1));
    case Kind::Min: return std::min(value(0), value(1));
    case Kind::Max: return std::max(value(0), value(1));
    case Kind::Eq: return value(0) == value(1);
    case Kind::Ne: return value(0) != value(1);
    case Kind::Lt: return value(0) < value(1);
    case Kind::Le: return value(0) <= value(1);
    case Kind::And: return value(0) && value(1);
    case Kind::Or: return value(0) || value(1);
    case Kind::Not: return !value(0);
  }
  return 0;
}

}  // namespace braze::sym
