#include "passes/element_formula.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/op.h"
#include "passes/builder.h"
#include "passes/term.h"

namespace braze::passes {

using sym::Kind;

namespace {

// Values that one formula is made of: masks have few dozens, and a value may be asked at more than one place.
constexpr int kMostValues = 400;

bool counts(DType dtype) { return dtype == DType::I64 || dtype == DType::I32; }
// As one of that type; not a number where it has none.
double rounded(double x, DType dtype) { return nearest(x, dtype).value_or(std::numeric_limits<double>::quiet_NaN()); }

bool fits(const sym::ExprArena& a, sym::Expr e, DType dtype) {
  const sym::Range r = a.range(e);
  return dtype == DType::I64 || (r.lo >= INT32_MIN && r.hi <= INT32_MAX);
}

bool is_truth(const sym::ExprArena& a, sym::Expr e) {
  switch (a.kind(e)) {
    case Kind::Eq:
    case Kind::Ne:
    case Kind::Lt:
    case Kind::Le:
    case Kind::And:
    case Kind::Or:
    case Kind::Not: return true;
    default: return a.is_const(e, 0) || a.is_const(e, 1);
  }
}

// A dimension that is given, as one from the front.
std::optional<size_t> dimension(const sym::ExprArena& a, const Arg& arg, size_t rank) {
  auto* e = std::get_if<sym::Expr>(&arg);
  auto d = e ? a.as_const(*e) : std::nullopt;
  if (!d) return std::nullopt;
  const auto n = static_cast<int64_t>(rank), at = *d < 0 ? *d + n : *d;
  return at >= 0 && at < n ? std::optional(static_cast<size_t>(at)) : std::nullopt;
}

Element number(sym::ExprArena& a, double x) { return {a.constant(1), std::pair{x, x}}; }

}  // namespace

sym::Expr ElementFormulas::symbol(char prefix, size_t position, sym::Expr extent) {
  sym::Expr s = a_.positional_symbol(prefix, position, extent, sym::SymbolKind::LoopVar);
  if (std::find(extents_.begin(), extents_.end(), std::pair{s, extent}) == extents_.end())
    extents_.emplace_back(s, extent);
  return s;
}

std::vector<sym::Expr> ElementFormulas::place(const std::vector<sym::Expr>& sizes) {
  Place out;
  for (size_t d = 0; d < sizes.size(); ++d)
    out.push_back(a_.is_const(sizes[d], 1) ? a_.constant(0) : symbol('p', d, sizes[d]));
  return out;
}

std::optional<Element> ElementFormulas::at(ValueId v, const Place& place) {
  if (depth_ == 0) left_ = kMostValues, inner_ = 0;
  const graph::Value& value = g_.value(v);
  if (left_-- <= 0 || !value.node.valid() || value.index != 0) return std::nullopt;
  const Node& n = g_.node(value.node);
  if (n.op == Op::Extern || n.outputs.size() != 1) return std::nullopt;
  ++depth_;
  Found found = made(n, value.type, place);
  --depth_;
  return found;
}

ElementFormulas::Found ElementFormulas::made(const Node& n, const TensorType& type, const Place& place) {
  const bool in_floats = has_digits(type.dtype);
  if (!in_floats && !counts(type.dtype) && type.dtype != DType::Bool) return std::nullopt;
  auto one = [&] { return constant(type.dtype, a_.constant(1)); };
  auto zero = [&] { return constant(type.dtype, a_.constant(0)); };
  switch (n.op) {
    case Op::full:
    case Op::full_like: return constant(type.dtype, n.args.at(1));
    case Op::new_full: return constant(type.dtype, n.args.at(2));
    case Op::scalar_tensor: return constant(type.dtype, n.args.at(0));
    case Op::ones:
    case Op::ones_like:
    case Op::new_ones: return one();
    case Op::zeros:
    case Op::zeros_like:
    case Op::new_zeros: return zero();
    case Op::arange:
    case Op::arange_start:
    case Op::arange_start_step: {
      auto bound = [&](size_t i) { return std::get_if<sym::Expr>(&n.args.at(i)); };
      const bool starts = n.op != Op::arange, steps = n.op == Op::arange_start_step;
      const sym::Expr *start = starts ? bound(0) : nullptr, *step = steps ? bound(2) : nullptr;
      if (!counts(type.dtype) || (starts && !start) || (steps && !step)) return std::nullopt;
      sym::Expr e = a_.add(start ? *start : a_.constant(0), a_.mul(step ? *step : a_.constant(1), place.at(0)));
      return fits(a_, e, type.dtype) ? Found{{e, {}}} : std::nullopt;
    }
    case Op::add_Tensor:
    case Op::add_Scalar:
    case Op::sub_Tensor:
    case Op::sub_Scalar:
    case Op::rsub_Tensor:
    case Op::rsub_Scalar:
    case Op::mul_Tensor:
    case Op::mul_Scalar: return arithmetic(n, type.dtype, place);
    case Op::eq_Tensor:
    case Op::eq_Scalar:
    case Op::ne_Tensor:
    case Op::ne_Scalar:
    case Op::lt_Tensor:
    case Op::lt_Scalar:
    case Op::le_Tensor:
    case Op::le_Scalar:
    case Op::gt_Tensor:
    case Op::gt_Scalar:
    case Op::ge_Tensor:
    case Op::ge_Scalar: return comparison(n, place);
    case Op::logical_and:
    case Op::logical_or:
    case Op::logical_not:
    case Op::bitwise_and_Tensor:
    case Op::bitwise_or_Tensor:
    case Op::bitwise_not: return connective(n, type.dtype, place);
    case Op::where_self: {
      Found c = operand(n.args.at(0), place, DType::Bool), yes = operand(n.args.at(1), place, type.dtype),
            no = operand(n.args.at(2), place, type.dtype);
      return c && yes && no ? where(c->value, *yes, *no, type.dtype) : std::nullopt;
    }
    case Op::masked_fill_Scalar:
    case Op::masked_fill_Tensor: {
      Found x = operand(n.args.at(0), place, type.dtype), c = operand(n.args.at(1), place, DType::Bool),
            fill = operand(n.args.at(2), place, type.dtype);
      return x && c && fill ? where(c->value, *fill, *x, type.dtype) : std::nullopt;
    }
    case Op::_to_copy: return operand(n.args.at(0), place, type.dtype);
    case Op::clone:
    case Op::alias:
    case Op::detach:
    case Op::lift_fresh: return operand(n.args.at(0), place, std::nullopt);
    case Op::tril:
    case Op::triu: return triangle(n, type.dtype, place);
    case Op::cat: return concatenated(n, type, place);
    case Op::index_Tensor: return gathered(n, type, place);
    case Op::constant_pad_nd: return padded(n, place);
    case Op::cumsum: return scanned(n, type, place);
    case Op::amax: return highest(n, type, place);
    default: return graph::op_class(n.op) == graph::OpClass::View ? view(n, type, place) : std::nullopt;
  }
}

// ---- elements ----

ElementFormulas::Found ElementFormulas::constant(DType dtype, const Arg& value) {
  if (has_digits(dtype)) {
    auto x = known_number(g_, value);
    return x ? Found(number(a_, rounded(*x, dtype))) : std::nullopt;
  }
  if (auto* b = std::get_if<bool>(&value)) return Element{a_.constant(*b), {}};
  auto* e = std::get_if<sym::Expr>(&value);
  if (!e) return std::nullopt;
  if (dtype == DType::Bool) return Element{a_.ne(*e, a_.constant(0)), {}};
  return fits(a_, *e, dtype) ? Found{{*e, {}}} : std::nullopt;
}

ElementFormulas::Found ElementFormulas::cast(const Element& e, DType to) {
  if (to == DType::Bool) return Element{truth(e), {}};
  if (has_digits(to)) {
    if (e.numbers) return Element{e.value, std::pair{rounded(e.numbers->first, to), rounded(e.numbers->second, to)}};
    if (auto c = a_.as_const(e.value)) return number(a_, rounded(static_cast<double>(*c), to));
    return is_truth(a_, e.value) ? Found{{e.value, std::pair{1.0, 0.0}}} : std::nullopt;
  }
  if (!counts(to)) return std::nullopt;
  if (!e.numbers) return fits(a_, e.value, to) ? Found(e) : std::nullopt;
  const auto [yes, no] = *e.numbers;
  if (yes == no && yes == std::floor(yes) && std::abs(yes) <= INT32_MAX)
    return Element{a_.constant(static_cast<int64_t>(yes)), {}};
  return yes == 1 && no == 0 ? Found{{e.value, {}}} : std::nullopt;
}

ElementFormulas::Found ElementFormulas::operand(const Arg& a, const Place& place, std::optional<DType> dtype) {
  auto* v = std::get_if<ValueId>(&a);
  if (!v) return dtype ? constant(*dtype, a) : std::nullopt;
  if (!v->valid()) return std::nullopt;
  Found found = at(*v, within(g_.type(*v), place));
  return found && dtype && *dtype != g_.type(*v).dtype ? cast(*found, *dtype) : found;
}

std::vector<sym::Expr> ElementFormulas::within(const TensorType& operand, const Place& place) const {
  Place out;
  const size_t more = place.size() - operand.dim();
  for (size_t d = 0; d < operand.dim(); ++d)
    out.push_back(a_.is_const(operand.sizes[d], 1) ? a_.constant(0) : place[more + d]);
  return out;
}

sym::Expr ElementFormulas::negated(sym::Expr e) {
  auto of = a_.operands(e);
  switch (a_.kind(e)) {
    case Kind::Le: return a_.le(a_.add(of[1], a_.constant(1)), of[0]);
    case Kind::Lt: return a_.le(of[1], of[0]);
    default: return a_.logical_not(e);
  }
}

sym::Expr ElementFormulas::chosen(sym::Expr condition, bool yes, bool no) {
  if (yes == no) return a_.constant(yes);
  return yes ? condition : negated(condition);
}

sym::Expr ElementFormulas::truth(const Element& e) {
  if (e.numbers) return chosen(e.value, e.numbers->first != 0, e.numbers->second != 0);
  return is_truth(a_, e.value) ? e.value : a_.ne(e.value, a_.constant(0));
}

template <class F>
std::optional<std::pair<sym::Expr, std::pair<double, double>>> ElementFormulas::both_ways(const Element& x,
                                                                                          const Element& y, F&& f) {
  if (!x.numbers || !y.numbers) return std::nullopt;
  const auto [a, b] = *x.numbers;
  const auto [c, d] = *y.numbers;
  const bool x_is_one = a == b, y_is_one = c == d;
  if (!x_is_one && !y_is_one && x.value != y.value) return std::nullopt;
  return std::pair{x_is_one ? y.value : x.value, std::pair{f(a, c), f(b, d)}};
}

ElementFormulas::Found ElementFormulas::arithmetic(const Node& n, DType dtype, const Place& place) {
  const bool swapped = n.op == Op::rsub_Tensor || n.op == Op::rsub_Scalar;
  const bool multiplies = n.op == Op::mul_Tensor || n.op == Op::mul_Scalar;
  const bool subtracts = swapped || n.op == Op::sub_Tensor || n.op == Op::sub_Scalar;
  if (!multiplies && !is_one(g_, n.args.at(2))) return std::nullopt;
  Found x = operand(n.args.at(0), place, dtype), y = operand(n.args.at(1), place, dtype);
  if (!x || !y || dtype == DType::Bool) return std::nullopt;
  if (swapped) std::swap(x, y);
  if (has_digits(dtype)) {
    auto made = both_ways(*x, *y, [&](double a, double b) {
      return rounded(multiplies ? a * b : subtracts ? a - b : a + b, dtype);
    });
    return made ? Found{{made->first, made->second}} : std::nullopt;
  }
  sym::Expr e = multiplies  ? a_.mul(x->value, y->value)
                : subtracts ? a_.sub(x->value, y->value)
                            : a_.add(x->value, y->value);
  return fits(a_, e, dtype) ? Found{{e, {}}} : std::nullopt;
}

ElementFormulas::Found ElementFormulas::comparison(const Node& n, const Place& place) {
  auto* first = std::get_if<ValueId>(&n.args.at(0));
  auto* second = std::get_if<ValueId>(&n.args.at(1));
  if (!first || !first->valid()) return std::nullopt;
  DType dtype = g_.type(*first).dtype;
  if (second && second->valid() && g_.type(*second).dtype != dtype) return std::nullopt;
  if (!second && std::holds_alternative<double>(n.args[1]) && !has_digits(dtype)) return std::nullopt;
  if (!second && dtype == DType::Bool) dtype = DType::I64;
  Found x = operand(n.args[0], place, dtype), y = operand(n.args[1], place, dtype);
  if (!x || !y) return std::nullopt;
  enum class Way : uint8_t { Equal, Less, LessOrEqual } way = Way::Equal;
  bool swaps = false, negates = false;
  switch (n.op) {
    case Op::ne_Tensor:
    case Op::ne_Scalar: negates = true; break;
    case Op::gt_Tensor:
    case Op::gt_Scalar: swaps = true; [[fallthrough]];
    case Op::lt_Tensor:
    case Op::lt_Scalar: way = Way::Less; break;
    case Op::ge_Tensor:
    case Op::ge_Scalar: swaps = true; [[fallthrough]];
    case Op::le_Tensor:
    case Op::le_Scalar: way = Way::LessOrEqual; break;
    default: break;
  }
  if (swaps) std::swap(x, y);
  auto holds = [&](double a, double b) {
    return negates != (way == Way::Equal ? a == b : way == Way::Less ? a < b : a <= b);
  };
  // Of a truth and a constant too, whose comparison as integers has no form of its own.
  auto as_numbers = [&](const Element& e) -> Element {
    if (e.numbers) return e;
    if (auto c = a_.as_const(e.value); c && (*c == 0 || *c == 1)) return number(a_, static_cast<double>(*c));
    return is_truth(a_, e.value) ? Element{e.value, std::pair{1.0, 0.0}} : e;
  };
  if (auto both =
          both_ways(as_numbers(*x), as_numbers(*y), [&](double a, double b) { return holds(a, b) ? 1.0 : 0.0; }))
    return Element{chosen(both->first, both->second.first != 0, both->second.second != 0), {}};
  if (x->numbers || y->numbers) return std::nullopt;
  const sym::Expr one = a_.constant(1);
  switch (way) {
    case Way::Equal: return Element{negates ? a_.ne(x->value, y->value) : a_.eq(x->value, y->value), {}};
    case Way::Less: return Element{a_.le(a_.add(x->value, one), y->value), {}};
    case Way::LessOrEqual: return Element{a_.le(x->value, y->value), {}};
  }
  return std::nullopt;
}

ElementFormulas::Found ElementFormulas::connective(const Node& n, DType dtype, const Place& place) {
  if (dtype != DType::Bool) return std::nullopt;  // bitwise, of integers
  Found x = operand(n.args.at(0), place, DType::Bool);
  if (!x) return std::nullopt;
  if (n.op == Op::logical_not || n.op == Op::bitwise_not) return Element{negated(x->value), {}};
  Found y = operand(n.args.at(1), place, DType::Bool);
  if (!y) return std::nullopt;
  const bool both = n.op == Op::logical_and || n.op == Op::bitwise_and_Tensor;
  return Element{both ? a_.logical_and(x->value, y->value) : a_.logical_or(x->value, y->value), {}};
}

ElementFormulas::Found ElementFormulas::where(sym::Expr c, const Element& yes, const Element& no, DType dtype) {
  if (a_.is_const(c, 0)) return no;
  if (a_.is_const(c, 1)) return yes;
  if (!has_digits(dtype)) {
    if (yes.value == no.value) return yes;
    if (is_truth(a_, yes.value) && is_truth(a_, no.value))
      return Element{a_.logical_or(a_.logical_and(c, yes.value), a_.logical_and(negated(c), no.value)), {}};
    return std::nullopt;
  }
  if (!yes.numbers || !no.numbers) return std::nullopt;
  auto [a, b] = *yes.numbers;
  auto [x, y] = *no.numbers;
  const bool yes_is_one = a == b, no_is_one = x == y;
  if (yes_is_one && no_is_one) return Element{c, std::pair{a, x}};
  // As one choice between the same two numbers: a number alone is one that its truth always chooses, or never.
  sym::Expr if_yes = yes.value, if_no = no.value;
  if (yes_is_one) {
    if (a != x && a != y) return std::nullopt;
    if_yes = a_.constant(a == x);
    a = x, b = y;
  } else if (no_is_one) {
    if (x != a && x != b) return std::nullopt;
    if_no = a_.constant(x == a);
  } else if (a != x || b != y) {
    return std::nullopt;
  }
  return Element{a_.logical_or(a_.logical_and(c, if_yes), a_.logical_and(negated(c), if_no)), std::pair{a, b}};
}

// ---- places ----

bool ElementFormulas::is_below(sym::Expr e, sym::Expr size) {
  if (a_.known(a_.lt(e, size)).value_or(false)) return true;
  for (const auto& [s, extent] : extents_) {
    if (!a_.contains(e, s)) continue;
    auto affine = a_.affine_in(e, s);
    if (!affine || a_.range(affine->coefficient).lo < 0) return false;
    const std::pair<sym::Expr, sym::Expr> last{s, a_.sub(extent, a_.constant(1))};
    e = a_.substitute(e, {&last, 1});
  }
  return a_.known(a_.lt(e, size)).value_or(false);
}

ElementFormulas::Found ElementFormulas::view(const Node& n, const TensorType& type, const Place& place) {
  auto* v = std::get_if<ValueId>(&n.args.at(0));
  if (!v || !v->valid()) return std::nullopt;
  const TensorType& from = g_.type(*v);
  if (from.dtype != type.dtype) return std::nullopt;
  auto wrapped = [&](size_t i) { return dimension(a_, n.args.at(i), from.dim()); };
  // A position that is given, from the end where it is negative.
  auto position = [&](size_t i, sym::Expr size) -> std::optional<sym::Expr> {
    auto* e = std::get_if<sym::Expr>(&n.args.at(i));
    if (!e) return std::nullopt;
    if (a_.range(*e).lo >= 0) return *e;
    const sym::Expr from_end = a_.add(*e, size);
    return a_.range(*e).hi < 0 && a_.range(from_end).lo >= 0 ? std::optional(from_end) : std::nullopt;
  };
  Place to = place;
  switch (n.op) {
    case Op::expand: return at(*v, within(from, place));
    case Op::t:
      if (from.dim() == 2) std::swap(to[0], to[1]);
      return at(*v, to);
    case Op::transpose_int: {
      auto a = wrapped(1), b = wrapped(2);
      if (!a || !b) return std::nullopt;
      std::swap(to.at(*a), to.at(*b));
      return at(*v, to);
    }
    case Op::permute: {
      auto* order = std::get_if<IntList>(&n.args.at(1));
      if (!order || order->v.size() != from.dim()) return std::nullopt;
      for (size_t d = 0; d < from.dim(); ++d) {
        auto k = dimension(a_, order->v[d], from.dim());
        if (!k) return std::nullopt;
        to[*k] = place[d];
      }
      return at(*v, to);
    }
    case Op::slice_Tensor: {
      auto d = wrapped(1);
      auto* step = std::get_if<sym::Expr>(&n.args.at(4));
      if (!d || !step) return std::nullopt;
      const bool whole = std::holds_alternative<graph::NoneArg>(n.args.at(2));
      auto start = whole ? std::optional(a_.constant(0)) : position(2, from.sizes.at(*d));
      if (!start) return std::nullopt;
      to.at(*d) = a_.add(*start, a_.mul(*step, place.at(*d)));
      return at(*v, to);
    }
    case Op::select_int: {
      auto d = wrapped(1);
      auto where = d ? position(2, from.sizes.at(*d)) : std::nullopt;
      if (!where) return std::nullopt;
      to.insert(to.begin() + static_cast<std::ptrdiff_t>(*d), *where);
      return at(*v, to);
    }
    case Op::view:
    case Op::_unsafe_view:
    case Op::reshape:
    case Op::unsqueeze:
    case Op::squeeze:
    case Op::squeeze_dim:
    case Op::squeeze_dims: {
      // The same dimensions, but for those of one place.
      Place there;
      size_t d = 0;
      for (sym::Expr size : from.sizes) {
        if (a_.is_const(size, 1)) {
          there.push_back(a_.constant(0));
          continue;
        }
        while (d < type.dim() && a_.is_const(type.sizes[d], 1)) ++d;
        if (d == type.dim() || type.sizes[d] != size) return std::nullopt;
        there.push_back(place[d++]);
      }
      while (d < type.dim() && a_.is_const(type.sizes[d], 1)) ++d;
      return d == type.dim() ? at(*v, there) : std::nullopt;
    }
    default: return std::nullopt;
  }
}

ElementFormulas::Found ElementFormulas::triangle(const Node& n, DType dtype, const Place& place) {
  Found x = operand(n.args.at(0), place, std::nullopt), zero = constant(dtype, a_.constant(0));
  auto* diagonal = std::get_if<sym::Expr>(&n.args.at(1));
  if (!x || !zero || !diagonal || place.size() < 2) return std::nullopt;
  const sym::Expr edge = a_.add(place[place.size() - 2], *diagonal), column = place.back();
  return where(n.op == Op::tril ? a_.le(column, edge) : a_.le(edge, column), *x, *zero, dtype);
}

ElementFormulas::Found ElementFormulas::concatenated(const Node& n, const TensorType& type, const Place& place) {
  auto* parts = std::get_if<graph::TensorList>(&n.args.at(0));
  const auto dim = dimension(a_, n.args.at(1), type.dim());
  if (!parts || !dim) return std::nullopt;
  const size_t along = *dim;
  const sym::Expr k = place.at(along);
  auto part_at = [&](size_t i, sym::Expr begin) -> Found {
    const ValueId v = (*parts)[i];
    if (!v.valid() || g_.type(v).dim() != type.dim() || g_.type(v).dtype != type.dtype) return std::nullopt;
    Place to = place;
    to[along] = a_.sub(k, begin);
    return at(v, to);
  };
  sym::Expr begin = a_.constant(0);
  for (size_t i = 0; i < parts->size(); ++i) {
    if (!(*parts)[i].valid() || g_.type((*parts)[i]).dim() != type.dim()) return std::nullopt;
    const sym::Expr end = a_.add(begin, g_.type((*parts)[i]).sizes[along]);
    const auto before_end = a_.known(a_.lt(k, end));
    if (before_end == true || i + 1 == parts->size()) return part_at(i, begin);
    // What stands before the next part is one that continues it, as a difference's first element may be made to.
    if (!before_end) {
      if (i + 2 != parts->size() || !a_.is_const(g_.type((*parts)[i]).sizes[along], 1)) return std::nullopt;
      Found first = part_at(i, k), rest = part_at(i + 1, end);
      std::vector<sym::Expr> symbols;
      a_.collect_symbols(k, symbols);
      if (!first || !rest || first->numbers || rest->numbers || symbols.size() != 1) return std::nullopt;
      auto affine = a_.affine_in(k, symbols[0]);
      if (!affine || !a_.is_const(affine->coefficient, 1)) return std::nullopt;
      const std::pair<sym::Expr, sym::Expr> there{symbols[0], a_.sub(begin, affine->rest)};
      return a_.known_equal(a_.substitute(rest->value, {&there, 1}), a_.substitute(first->value, {&there, 1}))
                 ? rest
                 : std::nullopt;
    }
    begin = end;
  }
  return std::nullopt;
}

ElementFormulas::Found ElementFormulas::gathered(const Node& n, const TensorType& type, const Place& place) {
  auto* v = std::get_if<ValueId>(&n.args.at(0));
  auto* indices = std::get_if<graph::TensorList>(&n.args.at(1));
  if (!v || !v->valid() || !indices) return std::nullopt;
  const TensorType& from = g_.type(*v);
  if (indices->empty() || indices->size() > from.dim()) return std::nullopt;
  const size_t kept = from.dim() - indices->size();
  if (type.dim() < kept) return std::nullopt;
  const Place of_indices(place.begin(), place.end() - static_cast<std::ptrdiff_t>(kept));
  Place to;
  for (size_t d = 0; d < indices->size(); ++d) {
    const ValueId at_dim = (*indices)[d];
    if (!at_dim.valid() || !counts(g_.type(at_dim).dtype)) return std::nullopt;
    Found k = operand(at_dim, of_indices, std::nullopt);
    if (!k || a_.range(k->value).lo < 0 || !is_below(k->value, from.sizes[d])) return std::nullopt;
    to.push_back(k->value);
  }
  to.insert(to.end(), place.end() - static_cast<std::ptrdiff_t>(kept), place.end());
  return at(*v, to);
}

ElementFormulas::Found ElementFormulas::padded(const Node& n, const Place& place) {
  auto* v = std::get_if<ValueId>(&n.args.at(0));
  auto* pads = std::get_if<IntList>(&n.args.at(1));
  if (!v || !v->valid() || !pads || pads->v.size() > 2 * place.size()) return std::nullopt;
  Place to = place;
  for (size_t i = 0; 2 * i < pads->v.size(); ++i) {
    const size_t d = place.size() - 1 - i;
    to[d] = a_.sub(place[d], pads->v[2 * i]);
    if (a_.range(to[d]).lo < 0 || !is_below(to[d], g_.type(*v).sizes[d])) return std::nullopt;
  }
  return at(*v, to);
}

// A running sum of zeros.
ElementFormulas::Found ElementFormulas::scanned(const Node& n, const TensorType& type, const Place& place) {
  auto* v = std::get_if<ValueId>(&n.args.at(0));
  const auto along = dimension(a_, n.args.at(1), type.dim());
  if (!v || !v->valid() || !along || !counts(type.dtype) || place.empty()) return std::nullopt;
  Place to = place;
  to[*along] = symbol('r', inner_++, type.sizes[*along]);
  Found x = at(*v, to);
  return x && !x->numbers && a_.is_const(x->value, 0) ? x : std::nullopt;
}

// The maximum along dimensions in whose first places the higher one of two numbers stands.
ElementFormulas::Found ElementFormulas::highest(const Node& n, const TensorType& type, const Place& place) {
  auto* v = std::get_if<ValueId>(&n.args.at(0));
  auto* dims = std::get_if<IntList>(&n.args.at(1));
  if (!v || !v->valid() || !dims || dims->v.empty() || !has_digits(type.dtype)) return std::nullopt;
  const TensorType& from = g_.type(*v);
  std::vector<bool> reduced(from.dim());
  for (sym::Expr e : dims->v) {
    auto d = dimension(a_, e, from.dim());
    if (!d) return std::nullopt;
    reduced[*d] = true;
  }
  const bool keeps = type.dim() == from.dim();
  Place to;
  std::vector<std::pair<sym::Expr, sym::Expr>> first;
  for (size_t d = 0, k = 0; d < from.dim(); ++d) {
    if (reduced[d]) {
      to.push_back(symbol('r', inner_++, from.sizes[d]));
      first.emplace_back(to.back(), a_.constant(0));
      k += keeps;
    } else {
      to.push_back(place.at(k++));
    }
  }
  Found x = at(*v, to);
  if (!x || !x->numbers) return std::nullopt;
  auto [yes, no] = *x->numbers;
  if (std::isnan(yes) || std::isnan(no)) return std::nullopt;
  if (yes == no) return number(a_, yes);
  const sym::Expr high = yes > no ? x->value : negated(x->value);
  return a_.known(a_.substitute(high, first)) == true ? Found(number(a_, std::max(yes, no))) : std::nullopt;
}

}  // namespace braze::passes
