#include "symbolic/archive.h"

#include <algorithm>

namespace braze::sym {

namespace {

// How an expression begins.
enum class Form : uint8_t { Constant, Symbol, Compound, Known };
constexpr uint64_t kForms = 4;
constexpr int kMostNesting = 200;

uint64_t form(Form f, uint64_t number = 0) { return number * kForms + static_cast<uint64_t>(f); }

// Whether arenas order the operands by their age.
constexpr bool is_commutative(Kind k) {
  return k == Kind::Add || k == Kind::Mul || k == Kind::Min || k == Kind::Max || k == Kind::Eq || k == Kind::Ne ||
         k == Kind::And || k == Kind::Or;
}

}  // namespace

std::vector<Expr> Symbols::list() const {
  std::vector<Expr> out;
  for (const auto& [name, symbol] : by_name_) out.push_back(symbol);
  return out;
}

void Symbols::describe(const ExprArena& arena, ByteWriter& out) const {
  out.number(by_name_.size());
  for (const auto& [name, symbol] : by_name_) {
    Range r = arena.range(symbol);
    auto expected = arena.expected(symbol);
    out.text(name);
    out.number(static_cast<uint64_t>(arena.symbol_kind(symbol)));
    out.integer(r.lo), out.integer(r.hi);
    out.number(expected.has_value());
    out.integer(expected.value_or(0));
  }
}

Packer::Packer(ExprArena& arena, std::vector<Expr> symbols) : arena_(arena) {
  for (size_t i = 0; i < symbols.size(); ++i) numbers_[symbols[i].id] = form(Form::Symbol, i);
}

Packer::Packer(ExprArena& arena, Symbols& noted) : arena_(arena), noted_(&noted) {}

void Packer::pack(Expr e) {
  if (auto c = arena_.as_const(e)) {
    out_.number(form(Form::Constant));
    return out_.integer(*c);
  }
  if (noted_) return out_.raw(canonical(e));
  if (auto known = numbers_.find(e.id); known != numbers_.end()) return out_.number(known->second);
  Kind kind = arena_.kind(e);
  if (kind == Kind::Symbol) throw UnknownSymbol("a symbol that the archive does not know: " + arena_.print(e));
  auto operands = arena_.operands(e);
  out_.number(form(Form::Compound, static_cast<uint64_t>(kind)));
  out_.number(operands.size());
  for (Expr o : operands) pack(o);
  numbers_[e.id] = form(Form::Known, compounds_++);
}

const std::string& Packer::canonical(Expr e) {
  if (auto known = texts_.find(e.id); known != texts_.end()) return known->second;
  ByteWriter text;
  Kind kind = arena_.kind(e);
  if (auto c = arena_.as_const(e)) {
    text.number(form(Form::Constant));
    text.integer(*c);
  } else if (kind == Kind::Symbol) {
    noted_->add(arena_, e);
    text.number(form(Form::Symbol));
    text.text(arena_.symbol_name(e));
  } else {
    std::vector<std::string> operands;
    for (Expr o : arena_.operands(e)) operands.push_back(canonical(o));
    if (is_commutative(kind)) std::sort(operands.begin(), operands.end());
    text.number(form(Form::Compound, static_cast<uint64_t>(kind)));
    text.number(operands.size());
    for (const std::string& o : operands) text.raw(o);
  }
  return texts_[e.id] = text.take();
}

Expr Unpacker::expr(int depth) {
  if (depth > kMostNesting) damaged("expressions too deep");
  uint64_t head = in_.number(), number = head / kForms;
  switch (static_cast<Form>(head % kForms)) {
    case Form::Constant: return arena_.constant(in_.integer());
    case Form::Symbol:
      if (number >= symbols_) damaged("no such symbol");
      return known_[number];
    case Form::Known:
      if (number >= known_.size() - symbols_) damaged("no such expression");
      return known_[symbols_ + number];
    case Form::Compound: break;
  }
  if (number > static_cast<uint64_t>(Kind::Not)) damaged("no such kind of expression");
  std::vector<Expr> operands;
  for (size_t n = in_.count(); operands.size() < n;) operands.push_back(expr(depth + 1));
  known_.push_back(compound(static_cast<Kind>(number), operands));
  return known_.back();
}

Expr Unpacker::compound(Kind kind, const std::vector<Expr>& operands) {
  const bool sum = kind == Kind::Add || kind == Kind::Mul;
  if (sum ? operands.size() < 2 : operands.size() != (kind == Kind::Not ? 1 : 2)) damaged("a number of operands");
  Expr a = operands[0], b = operands.back();
  switch (kind) {
    case Kind::Add: return arena_.sum(operands);
    case Kind::Mul: return arena_.product(operands);
    case Kind::FloorDiv:
    case Kind::Mod:
      if (arena_.is_const(b, 0)) damaged("a division by zero");
      return kind == Kind::Mod ? arena_.mod(a, b) : arena_.floordiv(a, b);
    case Kind::Min: return arena_.min(a, b);
    case Kind::Max: return arena_.max(a, b);
    case Kind::Eq: return arena_.eq(a, b);
    case Kind::Ne: return arena_.ne(a, b);
    case Kind::Lt: return arena_.lt(a, b);
    case Kind::Le: return arena_.le(a, b);
    case Kind::And: return arena_.logical_and(a, b);
    case Kind::Or: return arena_.logical_or(a, b);
    case Kind::Not: return arena_.logical_not(a);
    case Kind::Const:
    case Kind::Symbol: break;
  }
  damaged("no such kind of expression");
}

}  // namespace braze::sym
