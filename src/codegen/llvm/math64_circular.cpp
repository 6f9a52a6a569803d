// sin, cos and tan of math64.h.
#include <cmath>

#include "codegen/llvm/math64_parts.h"

namespace braze::codegen::ir::math64 {
namespace {

struct Angle {
  Value *r, *low, *quadrant;  // x = quadrant * pi/2 + r + low; i64
};

// The method of M. Payne and R. Hanek, of a scalar: the mantissa times those 192 bits of 2/pi that matter.
Angle reduce_large(B64& b, Value* x) {
  static constexpr uint64_t kTwoOverPi[] = {0,  // above the point
                                            0xa2f9836e4e441529ull,
                                            0xfc2757d1f534ddc0ull,
                                            0xdb6295993c439041ull,
                                            0xfe5163abdebbc561ull,
                                            0xb7246e3a424dd2e0ull,
                                            0x06492eea09d1921cull,
                                            0xfe1deb1cb129a73eull,
                                            0xe88235f52ebb4484ull,
                                            0xe99c7026b45f7e41ull,
                                            0x3991d639835339f4ull,
                                            0x9c845f8bbdf9283bull,
                                            0x1ff897ffde05980full,
                                            0xef2f118b5a0a6d1full,
                                            0x6d367ecf27cb09b7ull,
                                            0x4f463f669e5fea2dull,
                                            0x7527bac7ebe5f17bull,
                                            0x3d0739f78a5292eaull,
                                            0x6bfb5fb11f8d5d08ull,
                                            0x56033046fc7b6babull,
                                            0xf0cfbc209af4361dull};
  constexpr size_t kWords = sizeof kTwoOverPi / sizeof *kTwoOverPi;
  auto& B = b.B;
  auto c = [&](uint64_t n) { return B.getInt64(n); };
  auto* type = llvm::ArrayType::get(b.i64(), kWords);
  llvm::Module& module = b.b.module;
  llvm::GlobalVariable* table = module.getGlobalVariable("two_over_pi", true);
  if (!table)
    table = new llvm::GlobalVariable(module, type, true, llvm::GlobalValue::InternalLinkage,
                                     llvm::ConstantDataArray::get(b.B.getContext(), kTwoOverPi), "two_over_pi");
  Value* i = b.bits(b.fabs(x));
  Value* mantissa = B.CreateOr(B.CreateAnd(i, c((uint64_t{1} << 52) - 1)), c(uint64_t{1} << 52));
  // x = mantissa * 2^e; the window starts at the bit of weight 2^(1-e), those before it give multiples of 4 quadrants.
  Value* e = B.CreateSub(B.CreateLShr(i, c(52)), c(1075));
  Value* first = B.CreateAdd(e, c(62));  // bit of the table: one word lies above the point
  Value *word = B.CreateLShr(first, c(6)), *bit = B.CreateAnd(first, c(63));
  auto load = [&](uint64_t k) {
    Value* at = B.CreateAdd(word, c(k));
    at = B.CreateSelect(B.CreateICmpULT(at, c(kWords)), at, c(kWords - 1));
    return B.CreateLoad(b.i64(), B.CreateInBoundsGEP(b.i64(), table, at));
  };
  Value* w[4] = {load(0), load(1), load(2), load(3)};
  auto window = [&](int k) {
    Value* low = B.CreateLShr(w[k + 1], B.CreateAnd(B.CreateSub(c(64), bit), c(63)));
    low = B.CreateSelect(B.CreateICmpEQ(bit, c(0)), c(0), low);
    return B.CreateOr(B.CreateShl(w[k], bit), low);
  };
  Value *a0 = window(0), *a1 = window(1), *a2 = window(2);
  auto* wide = B.getInt128Ty();
  auto times = [&](Value* a) { return B.CreateMul(B.CreateZExt(mantissa, wide), B.CreateZExt(a, wide)); };
  auto high = [&](Value* p) { return B.CreateTrunc(B.CreateLShr(p, llvm::ConstantInt::get(wide, 64)), b.i64()); };
  auto low = [&](Value* p) { return B.CreateTrunc(p, b.i64()); };
  Value *p1 = times(a1), *p2 = times(a2);
  Value* middle = B.CreateAdd(low(p1), high(p2));
  Value* carry = B.CreateZExt(B.CreateICmpULT(middle, low(p1)), b.i64());
  Value* top = B.CreateAdd(B.CreateAdd(B.CreateMul(mantissa, a0), high(p1)), carry);
  // Two bits of quadrant, then the fraction; rounded to the nearest quadrant.
  Value* fraction = B.CreateOr(B.CreateShl(top, c(2)), B.CreateLShr(middle, c(62)));
  Value* quadrant = B.CreateAdd(B.CreateLShr(top, c(62)), B.CreateLShr(fraction, c(63)));
  Value* rest = B.CreateOr(B.CreateShl(middle, c(2)), B.CreateLShr(low(p2), c(62)));
  Value* negative = B.CreateICmpSLT(fraction, c(0));
  Value* flip = B.CreateSExt(negative, b.i64());  // the magnitude of the negative number, but for its last bit
  Value *big = B.CreateXor(fraction, flip), *small = B.CreateXor(rest, flip);
  Value* value =
      b.fma(B.CreateUIToFP(big, b.f64()), num(b, 0x1p-64), mul(b, B.CreateUIToFP(small, b.f64()), num(b, 0x1p-128)));
  Value* r = mul(b, value, num(b, 1.5707963267948966));
  r = pick(b, negative, neg(b, r), r);
  Value* below = less(b, x, 0.0);
  return {pick(b, below, neg(b, r), r), num(b, 0.0), B.CreateSelect(below, B.CreateNeg(quadrant), quadrant)};
}

// Of |x| up to kNear, after W. Cody and W. Waite: multiples of pi/2 in three parts; `low` is what rounding took from r.
constexpr double kNear = 0x1p30;
Angle reduce(B64& b, Value* x) {
  constexpr double kHalfPi[] = {0x1.921fb54442d18p0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};
  auto [quadrant, n] = whole(b, x, 0x1.45f306dc9c883p-1);
  Value* a = b.fma(n, num(b, -kHalfPi[0]), x);  // exact: a multiple of 2^-52 below 1
  Value* product = mul(b, n, num(b, kHalfPi[1]));
  Value* product_low = b.fma(n, num(b, kHalfPi[1]), neg(b, product));
  Value* r = sub(b, a, product);
  Value* low = sub(b, sub(b, sub(b, a, r), product), product_low);
  return {r, b.fma(n, num(b, -kHalfPi[2]), low), quadrant};
}

Value* sine(B64& b, const Angle& a) {
  Value* z = mul(b, a.r, a.r);
  Value* p = b.horner(z, {1.5896223311697172e-10, -2.5050747727584072e-08, 2.7557313621814766e-06,
                          -0.00019841269829593057, 0.0083333333333221269, -0.1666666666666663});
  return add(b, a.r, b.fma(mul(b, p, z), a.r, a.low));
}
Value* cosine(B64& b, const Angle& a) {
  Value* z = mul(b, a.r, a.r);
  Value* p = b.horner(z, {-1.1358524883100558e-11, 2.0875700632959155e-09, -2.7557314177905631e-07,
                          2.4801587288847557e-05, -0.0013888888888873051, 0.041666666666666595});
  Value* half = mul(b, z, num(b, 0.5));
  Value* w = sub(b, num(b, 1.0), half);
  Value* tail = b.fma(mul(b, p, z), z, neg(b, mul(b, a.r, a.low)));
  return add(b, w, add(b, sub(b, sub(b, num(b, 1.0), w), half), tail));
}

// `of` an angle near 0, or where x is far, infinite included, by the C library or, without one, of an angle found in
// integers.
Value* circular(B64& b, const char* name, Value* x, llvm::function_ref<Value*(const Angle&)> of) {
  return b.b.rarely(greater(b, b.fabs(x), kNear), of(reduce(b, x)), [&] {
    if (b.b.has_c_library()) return b.b.call_per_lane(name, b.b.f64(), {x});
    return pick(b, is(b, b.fabs(x), INFINITY), num(b, NAN), of(reduce_large(b, x)));
  });
}

Value* sin_cos(B64& b, Value* x, bool cos) {
  return circular(b, cos ? "cos" : "sin", x, [&](const Angle& a) {
    Value* q = cos ? b.B.CreateAdd(a.quadrant, b.integer(1)) : a.quadrant;
    Value* out = pick(b, is_odd(b, q), cosine(b, a), sine(b, a));
    Value* sign = b.B.CreateShl(b.B.CreateAnd(q, b.integer(2)), b.integer(62));
    out = b.unbits(b.B.CreateXor(b.bits(out), sign));
    return cos ? out : pick(b, is(b, x, 0.0), x, out);
  });
}
}  // namespace

Value* sin(B64& b, Value* x) { return sin_cos(b, x, false); }
Value* cos(B64& b, Value* x) { return sin_cos(b, x, true); }
Value* tan(B64& b, Value* x) {
  return circular(b, "tan", x, [&](const Angle& a) {
    Value *s = sine(b, a), *c = cosine(b, a), *odd = is_odd(b, a.quadrant);
    return pick(b, is(b, x, 0.0), x, quotient(b, pick(b, odd, neg(b, c), s), pick(b, odd, s, c)));
  });
}

}  // namespace braze::codegen::ir::math64
