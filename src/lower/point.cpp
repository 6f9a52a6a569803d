// The operands of an op at one point, in the types that eager computes them in.
#include "base/check.h"
#include "lower/rules.h"

namespace braze::lower {

Val Point::in(size_t i, DType t) const {
  const graph::Arg& a = arg(i);
  if (auto* v = std::get_if<graph::ValueId>(&a)) return wrap(low.emit_broadcast(body, *v, index, type().sizes)).to(t);
  if (auto* e = std::get_if<Expr>(&a)) return wrap(body.index(*e, t));
  if (auto* d = std::get_if<double>(&a)) return wrap(body.constant(*d, t));
  if (auto* b = std::get_if<bool>(&a)) return wrap(body.constant(static_cast<int64_t>(*b), t));
  BRAZE_CHECK(false, "operand is neither tensor nor number: " + std::string(graph::op_name(node.op)));
}

Val Point::held(size_t i) const {
  Val x = in(i);
  DType to = type().dtype;
  if (to == dtype()) return x;
  auto* v = std::get_if<graph::ValueId>(&arg(i));
  return v && low.source.type(*v).dtype == to ? x : x.rounded(to);
}

Val Point::converted(size_t i) const { return type().device.type == DeviceType::CPU ? held(i) : in(i); }

Val Point::factor(size_t i) const {
  auto* v = std::get_if<graph::ValueId>(&arg(i));
  if (!v) return in(i);
  const auto& sizes = low.source.type(*v).sizes;
  bool one = std::all_of(sizes.begin(), sizes.end(), [&](Expr s) { return low.arena.is_const(s, 1); });
  return one ? in(i) : converted(i);
}

Val Point::own(size_t i) const {
  const graph::Arg& a = arg(i);
  if (auto* v = std::get_if<graph::ValueId>(&a)) return in(i, compute_dtype(low.source.type(*v).dtype));
  if (std::holds_alternative<bool>(a)) return in(i, DType::Bool);
  return in(i, std::holds_alternative<double>(a) ? DType::F64 : DType::I64);
}

std::optional<double> Point::constant(size_t i) const {
  const graph::Arg& a = arg(i);
  if (auto* d = std::get_if<double>(&a)) return *d;
  if (auto* b = std::get_if<bool>(&a)) return *b;
  if (auto* e = std::get_if<Expr>(&a))
    if (auto c = low.arena.as_const(*e)) return static_cast<double>(*c);
  return std::nullopt;
}

double Point::number(size_t i) const {
  auto c = constant(i);
  BRAZE_CHECK(c.has_value(), "argument is not a constant: " + std::string(graph::op_name(node.op)));
  return *c;
}

}  // namespace braze::lower
