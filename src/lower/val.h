// A value under construction, with operators: rules read as formulas. Operands of an operator have one dtype (numbers
// adapt).
#pragma once
#include <limits>
#include <numbers>

#include "lower/body.h"

namespace braze::lower {

struct Val {
  Body* body = nullptr;
  ValId id;

  DType dtype() const { return body->dtype(id); }
  Val to(DType t) const { return {body, body->cast(id, t)}; }
  Val rounded(DType half) const { return {body, body->rounded(id, half)}; }
  Val same(double c) const { return {body, body->constant(c, dtype())}; }
  Val same(int c) const { return {body, body->constant(static_cast<int64_t>(c), dtype())}; }
  bool floating() const { return is_floating(dtype()); }
  bool boolean() const { return dtype() == DType::Bool; }
};

inline Val unary(OpCode c, Val x) { return {x.body, x.body->op(c, x.dtype(), x.id)}; }
inline Val binary(OpCode c, Val x, Val y) { return {x.body, x.body->op(c, x.dtype(), x.id, y.to(x.dtype()).id)}; }
// Bool operands are compared as 0 and 1.
inline Val compare(OpCode c, Val x, Val y) {
  if (x.boolean()) x = x.to(DType::U8);
  return {x.body, x.body->op(c, DType::Bool, x.id, y.to(x.dtype()).id)};
}
inline Val truth(Val x) { return x.to(DType::Bool); }
inline Val where(Val c, Val x, Val y) {
  return {x.body, x.body->op(OpCode::Where, x.dtype(), truth(c).id, x.id, y.to(x.dtype()).id)};
}
inline Val where(Val c, Val x, double y) { return where(c, x, x.same(y)); }
inline Val where(Val c, double x, Val y) { return where(c, y.same(x), y); }

inline Val operator+(Val x, Val y) { return binary(x.boolean() ? OpCode::Or : OpCode::Add, x, y); }
inline Val operator-(Val x, Val y) { return binary(x.boolean() ? OpCode::Xor : OpCode::Sub, x, y); }
inline Val operator*(Val x, Val y) { return binary(x.boolean() ? OpCode::And : OpCode::Mul, x, y); }
inline Val operator/(Val x, Val y) { return binary(OpCode::Div, x, y); }
inline Val operator+(Val x, double y) { return x + x.same(y); }
inline Val operator-(Val x, double y) { return x - x.same(y); }
inline Val operator*(Val x, double y) { return x * x.same(y); }
inline Val operator/(Val x, double y) { return x / x.same(y); }
inline Val operator+(double x, Val y) { return y.same(x) + y; }
inline Val operator-(double x, Val y) { return y.same(x) - y; }
inline Val operator*(double x, Val y) { return y * x; }
inline Val operator/(double x, Val y) { return y.same(x) / y; }
// x * y + z, rounded once.
inline Val fma(Val x, Val y, Val z) { return {x.body, x.body->op(OpCode::Fma, z.dtype(), x.id, y.id, z.id)}; }
inline Val operator-(Val x) { return unary(OpCode::Neg, x); }
inline Val operator==(Val x, Val y) { return compare(OpCode::Eq, x, y); }
inline Val operator!=(Val x, Val y) { return compare(OpCode::Ne, x, y); }
inline Val operator<(Val x, Val y) { return compare(OpCode::Lt, x, y); }
inline Val operator<=(Val x, Val y) { return compare(OpCode::Le, x, y); }
inline Val operator>(Val x, Val y) { return compare(OpCode::Gt, x, y); }
inline Val operator>=(Val x, Val y) { return compare(OpCode::Ge, x, y); }
inline Val operator==(Val x, double y) { return x == x.same(y); }
inline Val operator!=(Val x, double y) { return x != x.same(y); }
inline Val operator<(Val x, double y) { return x < x.same(y); }
inline Val operator<=(Val x, double y) { return x <= x.same(y); }
inline Val operator>(Val x, double y) { return x > x.same(y); }
inline Val operator>=(Val x, double y) { return x >= x.same(y); }
inline Val operator&(Val x, Val y) { return binary(OpCode::And, x, y); }
inline Val operator|(Val x, Val y) { return binary(OpCode::Or, x, y); }
inline Val operator^(Val x, Val y) { return binary(OpCode::Xor, x, y); }
inline Val operator~(Val x) { return unary(OpCode::Not, x); }
inline Val max(Val x, Val y) { return binary(x.boolean() ? OpCode::Or : OpCode::Max, x, y); }
inline Val min(Val x, Val y) { return binary(x.boolean() ? OpCode::And : OpCode::Min, x, y); }
inline Val max(Val x, double y) { return max(x, x.same(y)); }
inline Val min(Val x, double y) { return min(x, x.same(y)); }
inline Val abs(Val x) { return unary(OpCode::Abs, x); }
inline Val exp(Val x) { return unary(OpCode::Exp, x); }
inline Val exp2(Val x) { return unary(OpCode::Exp2, x); }
inline Val expm1(Val x) { return unary(OpCode::Expm1, x); }
inline Val log(Val x) { return unary(OpCode::Log, x); }
inline Val log2(Val x) { return unary(OpCode::Log2, x); }
inline Val log1p(Val x) { return unary(OpCode::Log1p, x); }
inline Val sqrt(Val x) { return unary(OpCode::Sqrt, x); }
inline Val rsqrt(Val x) { return unary(OpCode::Rsqrt, x); }
inline Val recip(Val x) { return unary(OpCode::Recip, x); }
inline Val tanh(Val x) { return unary(OpCode::Tanh, x); }
inline Val erf(Val x) { return unary(OpCode::Erf, x); }
inline Val sigmoid(Val x) { return unary(OpCode::Sigmoid, x); }
inline Val sin(Val x) { return unary(OpCode::Sin, x); }
inline Val floor(Val x) { return unary(OpCode::Floor, x); }
inline Val trunc(Val x) { return unary(OpCode::Trunc, x); }
inline Val round(Val x) { return unary(OpCode::Round, x); }
inline Val pow(Val x, Val y) { return binary(OpCode::Pow, x, y); }
inline Val copysign(Val x, Val y) { return binary(OpCode::Copysign, x, y); }
inline Val fmod(Val x, Val y) { return binary(OpCode::Mod, x, y); }
inline Val isnan(Val x) { return {x.body, x.body->op(OpCode::IsNan, DType::Bool, x.id)}; }
inline Val isinf(Val x) { return {x.body, x.body->op(OpCode::IsInf, DType::Bool, x.id)}; }

}  // namespace braze::lower
