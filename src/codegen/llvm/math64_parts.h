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
  Value* two_chains(Value* x, Value* square, std::initializer_list<double> highest_first) {
    return b.two_chains(x, square, highest_first);
  }
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

// The whole number next to a double below 2^50: in the low bits, and as a double. Vectors of AVX2 have no instruction
// that converts between doubles and 64-bit integers; what is added to 1.5 * 2^52 is rounded to a whole number.
struct Whole {
  Value* k;  // with what the magic number has beyond 1.5 * 2^52
  Value* n;
};
inline Value* magic(B64& b, int more = 0) { return num(b, 0x1.8p52 + more); }
inline Whole whole(B64& b, Value* x, double factor, Value* magic) {
  Value* y = b.fma(x, num(b, factor), magic);
  return {b.bits(y), sub(b, y, magic)};
}
inline Whole whole(B64& b, Value* x, double factor) { return whole(b, x, factor, magic(b)); }

// 2^(k - kExponent) for k in [1, 2046], of which the low 12 bits are read.
inline constexpr int kExponent = 1023;
inline Value* power(B64& b, Value* k) { return b.unbits(b.B.CreateShl(k, b.integer(52))); }

// How 2^n is formed without instructions for it: as 2^(n + move), a normal number, and 2^-move, with which all is
// rounded at last. For n in [-1100, 1025] that is above 0 only where `x` is not negative.
// `gone`: lanes below `least`, of which nothing is left.
struct Move {
  Value *magic, *last, *gone;
};
inline Move by_sign_of(B64& b, Value* x, double least) {
  Value* gone = b.b.slow_underflow() ? b.B.CreateFCmpOLT(x, num(b, least)) : nullptr;
  if (b.b.has_native_scale(x)) return {magic(b), nullptr, gone};
  Value* below = b.B.CreateICmpSLT(b.bits(x), b.integer(0));
  return {pick(b, below, magic(b, kExponent + 128), magic(b, kExponent - 2)),
          pick(b, below, num(b, 0x1p-128), num(b, 4.0)), gone};
}
// p * 2^n for p near 1, rounded once, also where the result is denormal.
inline Value* scale(B64& b, Value* p, const Whole& w, const Move& move) {
  if (b.b.has_native_scale(p)) return b.b.native_scale(p, w.n, move.gone);
  Value* last = move.gone ? pick(b, move.gone, num(b, 0.0), move.last) : move.last;
  return mul(b, mul(b, p, power(b, w.k)), last);
}

Value* sin(B64& b, Value* x);
Value* cos(B64& b, Value* x);
Value* tan(B64& b, Value* x);

}  // namespace braze::codegen::ir::math64
