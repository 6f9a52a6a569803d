#include "passes/term.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace braze::passes {
namespace {

class TermParser {
 public:
  explicit TermParser(std::string_view text) : text_(text) {}

  Term whole() {
    Term t = term();
    skip();
    if (at_ != text_.size()) fail("the end");
    return t;
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    throw InternalError("in the term \"" + std::string(text_) + "\", at " + std::to_string(at_) + ": expected " +
                        std::string(expected));
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view what) {
    skip();
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  std::string word() {
    const size_t from = at_;
    auto belongs = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
    while (at_ < text_.size() && belongs(text_[at_])) ++at_;
    if (from == at_) fail("a name");
    return std::string(text_.substr(from, at_ - from));
  }

  Term term() {
    Term t;
    skip();
    if (take("...")) {
      t.kind = Term::Kind::Rest;
    } else if (take("?")) {
      t.kind = Term::Kind::Tensor, t.name = word();
    } else if (take("#")) {
      t.kind = Term::Kind::Number, t.name = word();
    } else if (number(t)) {
      t.kind = Term::Kind::Literal;
    } else if (std::string name = word(); name == "_") {
      t.kind = Term::Kind::Any;
    } else if (take("(")) {
      t.kind = Term::Kind::Call, t.name = "aten::" + name;
      do t.args.push_back(term());
      while (take(","));
      if (!take(")")) fail("')'");
    } else {
      t.kind = Term::Kind::Part, t.name = std::move(name);
    }
    return t;
  }

  bool number(Term& t) {
    const char *from = text_.data() + at_, *end = text_.data() + text_.size();
    if (from == end || (std::isalpha(static_cast<unsigned char>(*from)) && !text_.substr(at_).starts_with("inf")) ||
        *from == '_')
      return false;
    auto [stop, error] = std::from_chars(from, end, t.number);
    if (error != std::errc()) return false;
    at_ += static_cast<size_t>(stop - from);
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// Of a sum, only where the second operand is taken once.
bool either_way(const Graph& g, const Node& n) {
  if (n.args.size() < 2) return false;
  if (n.op == Op::add_Tensor) return is_one_or_absent(g, n, 2);
  return (graph::op_traits(n.op) & graph::kCommutative) != 0;
}

bool same_arg(const Arg& a, const Arg& b) { return same_args({a}, {b}); }

}  // namespace

Term parse_term(std::string_view text) { return TermParser(text).whole(); }

const Arg* Bindings::find(std::string_view name) const {
  for (const auto& [n, arg] : all_)
    if (n == name) return &arg;
  return nullptr;
}

ValueId Bindings::tensor(std::string_view name) const {
  const Arg* a = find(name);
  auto* v = a ? std::get_if<ValueId>(a) : nullptr;
  BRAZE_CHECK(v, "a rule's tensor has no value");
  return *v;
}

std::optional<double> nearest(double number, DType dtype) {
  if (dtype == DType::F64) return number;
  if (std::isinf(number) || number == 0) return number;
  const int digits = dtype == DType::F32 ? 24 : dtype == DType::F16 ? 11 : 8;
  int exponent = 0;
  const double mantissa = std::frexp(number, &exponent);
  const double whole = std::nearbyint(std::ldexp(mantissa, digits));
  const double near = std::ldexp(whole, exponent - digits);
  const bool small = std::abs(near) < (dtype == DType::F16 ? 0x1p-14 : 0x1p-126);
  const bool large = std::abs(near) >= (dtype == DType::F16 ? 65520.0 : 0x1p128);
  return small || large ? std::nullopt : std::optional(near);
}

bool has_digits(DType dtype) {
  return dtype == DType::F64 || dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16;
}

std::optional<double> known_number(const Graph& g, const Arg& a) {
  if (auto* d = std::get_if<double>(&a)) return *d;
  if (auto* b = std::get_if<bool>(&a)) return *b;
  if (auto* e = std::get_if<sym::Expr>(&a))
    if (auto c = g.arena().as_const(*e)) return static_cast<double>(*c);
  auto* v = std::get_if<ValueId>(&a);
  if (!v || !v->valid() || !g.value(*v).node.valid()) return std::nullopt;
  const Node& n = g.node(g.value(*v).node);
  const TensorType& t = g.type(*v);
  const bool fills = n.op == Op::full && t.dim() == 0;
  if ((!fills && n.op != Op::scalar_tensor) || !has_digits(t.dtype)) return std::nullopt;
  const auto number = known_number(g, n.args.at(fills ? 1 : 0));
  return number ? nearest(*number, t.dtype) : number;
}

bool Matcher::matches(const Term& term, const Node& n, Bindings& names, std::vector<NodeId>& below) const {
  BRAZE_CHECK(term.kind == Term::Kind::Call, "a rule begins with an operator");
  if (n.op == Op::Extern || n.outputs.empty() || !n.outputs[0].valid()) return false;
  const std::string_view name = graph::op_name(n.op);
  if (name != term.name && name.substr(0, name.find('.')) != term.name) return false;
  std::vector<const Arg*> args;
  for (const Arg& a : n.args) args.push_back(&a);
  if (arguments(term, args, names, below)) return true;
  if (!either_way(g_, n)) return false;
  std::swap(args[0], args[1]);
  return arguments(term, args, names, below);
}

bool Matcher::arguments(const Term& term, const std::vector<const Arg*>& args, Bindings& names,
                        std::vector<NodeId>& below) const {
  const size_t named = names.size(), found = below.size();
  const bool open = !term.args.empty() && term.args.back().kind == Term::Kind::Rest;
  const size_t least = term.args.size() - open;
  bool same = open ? args.size() >= least : args.size() == least;
  for (size_t i = 0; same && i < least; ++i) same = argument(term.args[i], *args[i], names, below);
  if (!same) names.shrink(named), below.resize(found);
  return same;
}

bool Matcher::argument(const Term& term, const Arg& arg, Bindings& names, std::vector<NodeId>& below) const {
  auto* v = std::get_if<ValueId>(&arg);
  auto bind = [&](Arg now) {
    const Arg* before = names.find(term.name);
    if (before) return same_arg(*before, now);
    names.add(term.name, std::move(now));
    return true;
  };
  switch (term.kind) {
    case Term::Kind::Any: return true;
    case Term::Kind::Tensor: return v && v->valid() && bind(arg);
    case Term::Kind::Number: return known_number(g_, arg) && bind(arg);
    case Term::Kind::Literal: {
      auto number = known_number(g_, arg);
      return number && *number == term.number && std::signbit(*number) == std::signbit(term.number);
    }
    case Term::Kind::Part: return v && v->valid() && is_part_ && is_part_(term.name, *v);
    case Term::Kind::Call: {
      if (!v || !v->valid() || !g_.value(*v).node.valid() || g_.value(*v).index != 0) return false;
      const NodeId made = g_.value(*v).node;
      if (!matches(term, g_.node(made), names, below)) return false;
      below.push_back(made);
      return true;
    }
    case Term::Kind::Rest: break;
  }
  throw InternalError("\"...\" is not a term's last argument");
}

Arg write(Builder& b, const Term& term, const std::function<Arg(std::string_view name)>& named) {
  switch (term.kind) {
    case Term::Kind::Tensor:
    case Term::Kind::Number: return named(term.name);
    case Term::Kind::Literal: {
      const bool whole = term.number == std::trunc(term.number) && std::abs(term.number) < 1e15 &&
                         !(term.number == 0 && std::signbit(term.number));
      return whole ? Arg(b.k(static_cast<int64_t>(term.number))) : Arg(term.number);
    }
    case Term::Kind::Call: {
      const Op op = graph::op_from_name(term.name);
      BRAZE_CHECK(op != Op::Extern, "a rule writes an operator without a row: " + term.name);
      std::vector<Arg> args;
      for (const Term& t : term.args) args.push_back(write(b, t, named));
      return b.call(op, std::move(args));
    }
    default: throw InternalError("a rule writes what is no argument");
  }
}

}  // namespace braze::passes
