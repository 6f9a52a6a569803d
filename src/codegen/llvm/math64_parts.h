// What the files of math64.h share: a builder of doubles, and the steps that most functions take.
#pragma once
#include "codegen/llvm/vector_builder.h"

namespace braze::codegen::ir::math64 {

// A builder of doubles in one shape: of a scalar or of a vector.
struct B64 {
  VectorBuilder& b;
  Type* type;
  llvm::IRBuilder<>& B = b.B;

  Type* i64() { return VectorBuilder::like(type, b.i64()); }
  Type* f64() { return type; }
  Value* integer(int64_t x) { return b.integer(i64(), x); }
  Value* fma(Value* x, Value* y, Value* z) { return b.fma(x, y, z); }
  Value* horner(Value* x, std::initializer_list<double> highest_first) { return b.horner(x, highest_first); }
  Value* at_most(Value* bound, Value* x) { return b.at_most(bound, x); }
  Value* at_least(Value* bound, Value* x) { return b.at_least(bound, x); }
  Value* fabs(Value* x) { return b.fabs(x); }
  Value* copysign(Value* magnitude, Value* sign) { return b.copysign(magnitude, sign); }
  Value* bits(Value* x) { return b.bits(x); }
  Value* unbits(Value* x) { return b.unbits(x); }
};

inline Value* num(B64& b, double x) { return b.b.num(b.type, x); }
inline Value* add(B64& b, Value* x, Value* y) { return b.B.CreateFAdd(x, y); }
inline Value* sub(B64& b, Value* x, Value* y) { return b.B.CreateFSub(x, y); }
inline Value* mul(B64& b, Value* x, Value* y) { return b.B.CreateFMul(x, y); }
inline Value* div(B64& b, Value* x, Value* y) { return b.B.CreateFDiv(x, y); }
inline Value* neg(B64& b, Value* x) { return b.B.CreateFNeg(x); }
inline Value* sqrt(B64& b, Value* x) { return b.B.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x); }
inline Value* trunc(B64& b, Value* x) { return b.B.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, x); }
inline Value* pick(B64& b, Value* c, Value* x, Value* y) { return b.B.CreateSelect(c, x, y); }
inline Value* greater(B64& b, Value* x, double y) { return b.B.CreateFCmpOGT(x, num(b, y)); }
inline Value* less(B64& b, Value* x, double y) { return b.B.CreateFCmpOLT(x, num(b, y)); }
inline Value* is(B64& b, Value* x, double y) { return b.B.CreateFCmpOEQ(x, num(b, y)); }
// n / d of numbers far from the ends of the range, within 0.6 units in the last place: from a reciprocal of 14 bits,
// where there is one, a step of Newton's, and what is left of n.
inline Value* quotient(B64& b, Value* n, Value* d) {
  Value* r = b.b.native_reciprocal(d);
  if (!r) return div(b, n, d);
  r = b.fma(b.fma(neg(b, d), r, num(b, 1.0)), r, r);
  Value* q = mul(b, n, r);
  return b.fma(b.fma(neg(b, d), q, n), r, q);
}
// Whether the lowest bit is set: as a comparison of the sign, which blends read.
inline Value* is_odd(B64& b, Value* k) { return b.B.CreateICmpSLT(b.B.CreateShl(k, b.integer(63)), b.integer(0)); }

inline constexpr double kLn2 = 0x1.62e42fefa39efp-1, kLn2Rest = 0x1.abc9e3b39803fp-56;

// The whole number next to a double below 2^51: in the low bits, and as a double. Vectors of AVX2 have no instruction
// that converts between doubles and 64-bit integers; what is added to 1.5 * 2^52 is rounded to a whole number.
struct Whole {
  Value *k, *n;
};
inline Whole whole(B64& b, Value* x, double factor) {
  Value* magic = num(b, 0x1.8p52);
  Value* y = b.fma(x, num(b, factor), magic);
  return {b.bits(y), sub(b, y, magic)};
}

// 2^k for k in [-1022, 1023], of which the low 12 bits are read.
inline Value* power_of_two(B64& b, Value* k) {
  return b.unbits(b.B.CreateShl(b.B.CreateAdd(k, b.integer(1023)), b.integer(52)));
}

// p * 2^n for n in [-1100, 1030], with one rounding also where the result is denormal.
inline Value* scale(B64& b, Value* p, Whole w) {
  if (Value* r = b.b.native_scale(p, w.n)) return r;
  // Two factors: 2^n alone may be no normal number. The first product is exact.
  Value* half = whole(b, w.n, 0.5).k;
  return mul(b, mul(b, p, power_of_two(b, half)), power_of_two(b, b.B.CreateSub(w.k, half)));
}

Value* sin(B64& b, Value* x);
Value* cos(B64& b, Value* x);
Value* tan(B64& b, Value* x);

}  // namespace braze::codegen::ir::math64
