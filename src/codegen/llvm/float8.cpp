#include "codegen/llvm/float8.h"

#include <cmath>

namespace braze::codegen::ir {
namespace {

constexpr int64_t kQuietNan = 0x7fc00000, kInfinity = 0x7f800000;

Value* widen_power(VectorBuilder& b, Value* bits) {
  Value* u = b.B.CreateZExt(bits, VectorBuilder::like(bits, b.i32()));
  Value* r = b.B.CreateShl(u, b.integer(u, 23));
  r = b.B.CreateSelect(b.B.CreateICmpEQ(u, b.integer(u, 0)), b.integer(u, 0x400000), r);
  return b.unbits(b.B.CreateSelect(b.B.CreateICmpEQ(u, b.integer(u, 255)), b.integer(u, kQuietNan), r));
}

// Four bits of exponent, or the layout of f16 itself: as an f16 that is a power of two too small.
Value* widen_by_half(VectorBuilder& b, const Float8& f, Value* bits) {
  Value* s = b.B.CreateSExt(bits, VectorBuilder::like(bits, b.i16()));
  bool same = f.mantissa == 2;
  s = same ? b.B.CreateShl(s, b.integer(s, 8)) : b.B.CreateAnd(b.B.CreateShl(s, b.integer(s, 7)), b.integer(s, 0xbf80));
  Value* half = b.B.CreateBitCast(s, VectorBuilder::like(bits, b.B.getHalfTy()));
  Value* r = b.B.CreateFPExt(half, VectorBuilder::like(bits, b.f32()));
  return same ? r : b.B.CreateFMul(r, b.num(r, std::ldexp(1.0, 15 - f.bias)));
}

Value* widen_by_words(VectorBuilder& b, const Float8& f, Value* bits) {
  Value* u = b.B.CreateZExt(bits, VectorBuilder::like(bits, b.i32()));
  Value* low = b.B.CreateAnd(u, b.integer(u, 0x7f));
  Value* normal = b.B.CreateAdd(b.B.CreateShl(low, b.integer(u, 23 - f.mantissa)),
                                b.integer(u, static_cast<int64_t>(127 - f.bias) << 23));
  Value* digits = b.B.CreateSIToFP(low, VectorBuilder::like(bits, b.f32()));
  Value* small = b.bits(b.B.CreateFMul(digits, b.num(digits, std::ldexp(1.0, 1 - f.bias - f.mantissa))));
  Value* r = b.B.CreateSelect(b.B.CreateICmpULT(low, b.integer(u, 1 << f.mantissa)), small, normal);
  Value* sign = b.B.CreateShl(b.B.CreateAnd(u, b.integer(u, 0x80)), b.integer(u, 24));
  return b.unbits(b.B.CreateOr(r, sign));
}

Value* narrow_power(VectorBuilder& b, Value* magnitude) {
  auto word = [&](int64_t n) { return b.integer(magnitude, n); };
  Value* denormal = b.B.CreateICmpULT(magnitude, word(0x800000));
  Value* half = b.B.CreateSelect(denormal, word(0x3fffff), word(0x400000));
  Value* r = b.B.CreateLShr(b.B.CreateAdd(magnitude, half), word(23));
  r = b.B.CreateSelect(b.B.CreateICmpUGE(magnitude, word(kInfinity)), word(255), r);
  return b.B.CreateTrunc(r, VectorBuilder::like(magnitude, b.i8()));
}

}  // namespace

Value* widen_float8(VectorBuilder& b, const Float8& f, Value* bits) {
  if (Value* r = b.native_from_float8(f, bits)) return r;
  if (f.kind == Float8::Kind::Exponent) return widen_power(b, bits);
  if (f.kind == Float8::Kind::Ieee) return widen_by_half(b, f, bits);
  Value* r = f.mantissa == 3 ? widen_by_half(b, f, bits) : widen_by_words(b, f, bits);
  Value* nan = b.num(r, NAN);
  if (f.kind == Float8::Kind::OneZero) return b.B.CreateSelect(b.B.CreateICmpEQ(bits, b.integer(bits, -128)), nan, r);
  Value* digits = b.B.CreateAnd(bits, b.integer(bits, 0x7f));
  return b.B.CreateSelect(b.B.CreateICmpEQ(digits, b.integer(bits, 0x7f)), b.copysign(nan, r), r);
}

Value* narrow_float8(VectorBuilder& b, const Float8& f, Value* x) {
  if (Value* r = b.native_to_float8(f, x)) return r;
  Value* all = b.bits(x);
  auto word = [&](int64_t n) { return b.integer(all, n); };
  Value* magnitude = b.B.CreateAnd(all, word(0x7fffffff));
  if (f.kind == Float8::Kind::Exponent) return narrow_power(b, magnitude);
  const int dropped = 23 - f.mantissa;
  Value* odd = b.B.CreateAnd(b.B.CreateLShr(magnitude, word(dropped)), word(1));
  const int64_t rebias = (int64_t{1} << (dropped - 1)) - 1 - (static_cast<int64_t>(127 - f.bias) << 23);
  Value* r = b.B.CreateLShr(b.B.CreateAdd(b.B.CreateAdd(magnitude, odd), word(rebias)), word(dropped));
  Value* rounder = b.unbits(word(f.rounder()));
  Value* small = b.B.CreateSub(b.bits(b.B.CreateFAdd(b.unbits(magnitude), rounder)), word(f.rounder()));
  r = b.B.CreateSelect(b.B.CreateICmpULT(magnitude, word(f.least_normal())), small, r);
  Value* sign = b.B.CreateAnd(b.B.CreateLShr(all, word(24)), word(0x80));
  Value* beyond = b.B.CreateICmpUGE(magnitude, word(f.limit()));
  if (f.kind == Float8::Kind::OneZero) {
    Value* zero = b.B.CreateICmpEQ(r, word(0));
    r = b.B.CreateSelect(zero, r, b.B.CreateOr(r, sign));
    r = b.B.CreateSelect(beyond, word(0x80), r);
  } else {
    Value* last = b.B.CreateSelect(b.B.CreateICmpUGT(magnitude, word(kInfinity)), word(0x7f),
                                   word(f.kind == Float8::Kind::Ieee ? 0x7c : 0x7e));
    r = b.B.CreateOr(b.B.CreateSelect(beyond, last, r), sign);
  }
  return b.B.CreateTrunc(r, VectorBuilder::like(x, b.i8()));
}

}  // namespace braze::codegen::ir
