// Text form: infix for arithmetic, calls for the rest: 4*s0 + (i0 // 3), Min(a, b), Eq(s0, 4).
#include <cctype>

#include "symbolic/arena.h"

namespace braze::sym {

namespace {

constexpr std::string_view kCalls[] = {"Min", "Max", "Eq", "Ne", "Lt", "Le", "And", "Or", "Not"};

struct Parser {
  ExprArena& arena;
  std::string_view text;
  size_t at = 0;

  [[noreturn]] void fail(const std::string& what) {
    throw InternalError("expression, column " + std::to_string(at + 1) + ": " + what + " in '" + std::string(text) +
                        "'");
  }
  void space() {
    while (at < text.size() && std::isspace(static_cast<unsigned char>(text[at]))) ++at;
  }
  bool take(std::string_view token) {
    space();
    if (!text.substr(at).starts_with(token)) return false;
    at += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail("expected '" + std::string(token) + "'");
  }
  Expr sum() {
    Expr e = product();
    while (true) {
      if (take("+"))
        e = arena.add(e, product());
      else if (take("-"))
        e = arena.sub(e, product());
      else
        return e;
    }
  }
  Expr product() {
    Expr e = atom();
    while (true) {
      if (take("//"))
        e = arena.floordiv(e, atom());
      else if (take("*"))
        e = arena.mul(e, atom());
      else if (take("%"))
        e = arena.mod(e, atom());
      else
        return e;
    }
  }
  Expr atom() {
    space();
    if (take("-")) return arena.neg(atom());
    if (take("(")) {
      Expr e = sum();
      expect(")");
      return e;
    }
    size_t start = at;
    auto here = [&] { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0; };
    if (std::isdigit(here())) {
      while (std::isdigit(here())) ++at;
      return arena.constant(std::stoll(std::string(text.substr(start, at - start))));
    }
    while (std::isalnum(here()) || here() == '_' || here() == '.') ++at;
    if (at == start) fail("expected a value");
    std::string name(text.substr(start, at - start));
    for (std::string_view call : kCalls)
      if (name == call && take("(")) return finish_call(name);
    if (auto s = arena.find_symbol(name)) return *s;
    return arena.symbol(name, SymbolKind::Size, {0, INT64_MAX});
  }
  Expr finish_call(const std::string& name) {
    Expr a = sum();
    if (name == "Not") {
      expect(")");
      return arena.logical_not(a);
    }
    expect(",");
    Expr b = sum();
    expect(")");
    if (name == "Min") return arena.min(a, b);
    if (name == "Max") return arena.max(a, b);
    if (name == "Eq") return arena.eq(a, b);
    if (name == "Ne") return arena.ne(a, b);
    if (name == "Lt") return arena.lt(a, b);
    if (name == "Le") return arena.le(a, b);
    return name == "And" ? arena.logical_and(a, b) : arena.logical_or(a, b);
  }
};

void print_into(const ExprArena& arena, Expr e, std::string& out) {
  auto ops = arena.operands(e);
  auto factor = [&](Expr o) {
    Kind k = arena.kind(o);
    bool bare = (k == Kind::Const && *arena.as_const(o) >= 0) || k == Kind::Symbol || k >= Kind::Min;
    if (!bare) out += '(';
    print_into(arena, o, out);
    if (!bare) out += ')';
  };
  switch (arena.kind(e)) {
    case Kind::Const: out += std::to_string(*arena.as_const(e)); return;
    case Kind::Symbol: out += arena.symbol_name(e); return;
    case Kind::Add:
      for (size_t i = 0; i < ops.size(); ++i) {
        if (i) out += " + ";
        print_into(arena, ops[i], out);
      }
      return;
    case Kind::Mul:
      for (size_t i = 0; i < ops.size(); ++i) {
        if (i) out += '*';
        if (i == 0 && arena.kind(ops[0]) == Kind::Const)
          print_into(arena, ops[0], out);
        else
          factor(ops[i]);
      }
      return;
    case Kind::FloorDiv:
    case Kind::Mod:
      factor(ops[0]);
      out += arena.kind(e) == Kind::Mod ? " % " : " // ";
      factor(ops[1]);
      return;
    default:
      out += kCalls[static_cast<size_t>(arena.kind(e)) - static_cast<size_t>(Kind::Min)];
      out += '(';
      for (size_t i = 0; i < ops.size(); ++i) {
        if (i) out += ", ";
        print_into(arena, ops[i], out);
      }
      out += ')';
  }
}

}  // namespace

std::string ExprArena::print(Expr e) const {
  std::string out;
  print_into(*this, e, out);
  return out;
}

Expr ExprArena::parse(std::string_view text) {
  Parser p{*this, text};
  Expr e = p.sum();
  p.space();
  if (p.at != text.size()) p.fail("text after the expression");
  return e;
}

}  // namespace braze::sym
