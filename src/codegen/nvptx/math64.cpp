#include "codegen/nvptx/math64.h"

#include <array>
#include <cmath>
#include <functional>

#include "base/check.h"

namespace braze::codegen::nvptx::math64 {
namespace {

using llvm::Type;
using B64 = VectorBuilder;

Value* num(B64& b, double x) { return b.num(b.f64(), x); }
Value* add(B64& b, Value* x, Value* y) { return b.B.CreateFAdd(x, y); }
Value* sub(B64& b, Value* x, Value* y) { return b.B.CreateFSub(x, y); }
Value* mul(B64& b, Value* x, Value* y) { return b.B.CreateFMul(x, y); }
Value* div(B64& b, Value* x, Value* y) { return b.B.CreateFDiv(x, y); }
Value* neg(B64& b, Value* x) { return b.B.CreateFNeg(x); }
Value* sqrt(B64& b, Value* x) { return b.B.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, x); }
Value* pick(B64& b, Value* c, Value* x, Value* y) { return b.B.CreateSelect(c, x, y); }
Value* greater(B64& b, Value* x, double y) { return b.B.CreateFCmpOGT(x, num(b, y)); }
Value* less(B64& b, Value* x, double y) { return b.B.CreateFCmpOLT(x, num(b, y)); }
Value* is(B64& b, Value* x, double y) { return b.B.CreateFCmpOEQ(x, num(b, y)); }

// p * 2^n for integral n in [-1100, 1030], with one rounding also where the result is denormal.
Value* scale(B64& b, Value* p, Value* n) {
  Value* k = b.B.CreateFPToSI(n, b.i64());
  Value* half = b.B.CreateAShr(k, b.integer(k, 1));
  auto power = [&](Value* e) {
    return b.unbits(b.B.CreateShl(b.B.CreateAdd(e, b.integer(e, 1023)), b.integer(e, 52)));
  };
  return mul(b, mul(b, p, power(half)), power(b.B.CreateSub(k, half)));
}

struct Reduced {
  Value *n, *r;  // x = n ln(2) + r
};
Reduced reduce_ln2(B64& b, Value* x) {
  Value* n = b.round_even(mul(b, x, num(b, 1.4426950408889634)));
  Value* r = b.fma(n, num(b, -0x1.62e42fefa39efp-1), x);
  return {n, b.fma(n, num(b, -0x1.abc9e3b39803fp-56), r)};
}

// exp(r) - 1 for |r| <= ln(2)/2.
Value* exp_tail(B64& b, Value* r) {
  Value* p = b.horner(r, {1.6059043836821613e-10, 2.08767569878681e-09, 2.505210838544172e-08, 2.755731922398589e-07,
                          2.7557319223985893e-06, 2.48015873015873e-05, 1.984126984126984e-04, 1.388888888888889e-03,
                          8.333333333333333e-03, 4.1666666666666664e-02, 0.16666666666666666, 0.5});
  return b.fma(p, mul(b, r, r), r);
}

Value* clamp(B64& b, Value* x, double lo, double hi) { return b.at_least(num(b, lo), b.at_most(num(b, hi), x)); }

// exp(x + low) for a small `low`.
Value* exp_sum(B64& b, Value* x, Value* low) {
  auto [n, r] = reduce_ln2(b, clamp(b, x, -750.0, 711.0));
  if (low) r = add(b, r, low);
  return scale(b, add(b, exp_tail(b, r), num(b, 1.0)), n);
}
Value* exp(B64& b, Value* x) { return exp_sum(b, x, nullptr); }

Value* exp2(B64& b, Value* x) {
  Value* c = clamp(b, x, -1080.0, 1025.0);
  Value* n = b.round_even(c);
  Value* f = sub(b, c, n);
  Value* r = mul(b, f, num(b, 0x1.62e42fefa39efp-1));
  Value* low = b.fma(f, num(b, 0x1.62e42fefa39efp-1), neg(b, r));
  low = b.fma(f, num(b, 0x1.abc9e3b39803fp-56), low);
  return scale(b, add(b, add(b, exp_tail(b, r), low), num(b, 1.0)), n);
}

Value* expm1(B64& b, Value* x) {
  auto [n, r] = reduce_ln2(b, clamp(b, x, -50.0, 710.5));
  Value* t = exp_tail(b, r);
  Value* s = scale(b, num(b, 0.5), n);  // 2^(n-1) does not overflow before the result does
  Value* half = b.fma(s, t, sub(b, s, num(b, 0.5)));
  return b.copysign(add(b, half, half), x);
}

struct Log {
  Value *f, *s, *half_square, *rest, *e;  // log(x) = f - (half_square - s (half_square + rest)) + e ln(2)
};
Log log_parts(B64& b, Value* x) {
  Value* tiny = less(b, x, 2.2250738585072014e-308);
  Value* scaled = pick(b, tiny, mul(b, x, num(b, 18014398509481984.0)), x);
  Value* i = b.bits(scaled);
  Value* e = b.B.CreateAShr(b.B.CreateSub(i, b.integer(i, 0x3FE6A09E667F3BCD)), b.integer(i, 52));
  Value* m = b.unbits(b.B.CreateSub(i, b.B.CreateShl(e, b.integer(e, 52))));
  Value* ef = b.B.CreateSIToFP(e, b.f64());
  ef = pick(b, tiny, sub(b, ef, num(b, 54.0)), ef);
  Value* f = sub(b, m, num(b, 1.0));
  Value* s = div(b, f, add(b, f, num(b, 2.0)));
  Value* z = mul(b, s, s);
  Value* rest = mul(b, z,
                    b.horner(z, {1.479819860511658591e-01, 1.531383769920937332e-01, 1.818357216161805012e-01,
                                 2.222219843214978396e-01, 2.857142874366239149e-01, 3.999999999940941908e-01,
                                 6.666666666666735130e-01}));
  return {f, s, mul(b, num(b, 0.5), mul(b, f, f)), rest, ef};
}

Value* log_special(B64& b, Value* x, Value* r) {
  r = pick(b, is(b, x, INFINITY), x, r);
  r = pick(b, is(b, x, 0.0), num(b, -INFINITY), r);
  return pick(b, b.B.CreateFCmpULT(x, num(b, 0.0)), num(b, NAN), r);
}

// `extra` is added to the small terms.
Value* log_sum(B64& b, const Log& l, Value* extra) {
  Value* low = mul(b, l.e, num(b, 1.90821492927058770002e-10));
  if (extra) low = add(b, low, extra);
  Value* inner = b.fma(l.s, add(b, l.half_square, l.rest), low);
  return b.fma(l.e, num(b, 6.93147180369123816490e-01), neg(b, sub(b, sub(b, l.half_square, inner), l.f)));
}
Value* log(B64& b, Value* x) { return log_special(b, x, log_sum(b, log_parts(b, x), nullptr)); }

Value* log_mantissa(B64& b, const Log& l) {
  return sub(b, l.f, b.fma(neg(b, l.s), add(b, l.half_square, l.rest), l.half_square));
}
Value* log2(B64& b, Value* x) {
  Log l = log_parts(b, x);
  return log_special(b, x, b.fma(log_mantissa(b, l), num(b, 1.4426950408889634), l.e));
}
Value* log10(B64& b, Value* x) {
  Log l = log_parts(b, x);
  Value* low =
      b.fma(l.e, num(b, 3.69423907715893078616e-13), mul(b, log_mantissa(b, l), num(b, 4.34294481903251816668e-01)));
  return log_special(b, x, b.fma(l.e, num(b, 3.01029995663611771306e-01), low));
}
Value* log1p(B64& b, Value* x) {
  Value* one = num(b, 1.0);
  Value* u = add(b, x, one);
  Value* lost = pick(b, b.B.CreateFCmpOGE(x, one), sub(b, one, sub(b, u, x)), sub(b, x, sub(b, u, one)));
  Value* r = log_special(b, u, log_sum(b, log_parts(b, u), div(b, lost, u)));
  return pick(b, b.B.CreateFCmpOEQ(u, one), x, r);
}

// ------------------------------------------------------------------ circular functions
struct Angle {
  Value *r, *quadrant;  // x = quadrant * pi/2 + r; i64
};

// Runs `slow` where `condition` holds, which is rare, and chooses between its values and `fast`.
std::array<Value*, 2> rarely(B64& b, Value* condition, std::array<Value*, 2> fast,
                             const std::function<std::array<Value*, 2>()>& slow) {
  llvm::BasicBlock* straight = b.B.GetInsertBlock();
  llvm::Instruction* resume = b.begin_if(condition, true);
  std::array<Value*, 2> other = slow();
  llvm::BasicBlock* from = b.B.GetInsertBlock();
  b.end_if(resume);
  llvm::BasicBlock* after = b.B.GetInsertBlock();
  std::array<Value*, 2> out;
  for (size_t i = 0; i < 2; ++i) {
    auto* phi = llvm::PHINode::Create(fast[i]->getType(), 2, "", after->begin());
    phi->addIncoming(fast[i], straight);
    phi->addIncoming(other[i], from);
    out[i] = phi;
  }
  return out;
}

// The method of M. Payne and R. Hanek: the mantissa times those 192 bits of 2/pi that matter.
std::array<Value*, 2> reduce_large(B64& b, Value* x) {
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
  llvm::GlobalVariable* table = b.module.getGlobalVariable("two_over_pi", true);
  if (!table)
    table = new llvm::GlobalVariable(b.module, type, true, llvm::GlobalValue::InternalLinkage,
                                     llvm::ConstantDataArray::get(b.context(), llvm::ArrayRef<uint64_t>(kTwoOverPi)),
                                     "two_over_pi");
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
  return {pick(b, below, neg(b, r), r), B.CreateSelect(below, B.CreateNeg(quadrant), quadrant)};
}

Angle reduce(B64& b, Value* x) {
  Value* n = b.round_even(mul(b, x, num(b, 0.63661977236758134308)));
  Value* r = b.fma(n, num(b, -0x1.921fb54442d18p0), x);
  r = b.fma(n, num(b, -0x1.1a62633145c07p-54), r);
  r = b.fma(n, num(b, 0x1.f1976b7ed8fbcp-110), r);
  Value* q = b.B.CreateFreeze(b.B.CreateFPToSI(n, b.i64()));
  // Infinity is large, too; the caller makes it NaN.
  auto out = rarely(b, greater(b, b.fabs(x), 33554432.0), {r, q}, [&] { return reduce_large(b, x); });
  return {out[0], out[1]};
}

Value* sine(B64& b, Value* r) {
  Value* z = mul(b, r, r);
  Value* p = b.horner(z, {1.58969099521155010221e-10, -2.50507602534068634195e-08, 2.75573137070700676789e-06,
                          -1.98412698298579493134e-04, 8.33333333332248946124e-03, -1.66666666666666324348e-01});
  return b.fma(mul(b, p, z), r, r);
}
Value* cosine(B64& b, Value* r) {
  Value* z = mul(b, r, r);
  Value* p = b.horner(z, {-1.13596475577881948265e-11, 2.08757232129817482790e-09, -2.75573143513906633035e-07,
                          2.48015872894767294178e-05, -1.38888888888741095749e-03, 4.16666666666666019037e-02});
  Value* half = mul(b, z, num(b, 0.5));
  Value* w = sub(b, num(b, 1.0), half);
  return add(b, w, b.fma(mul(b, z, z), p, sub(b, sub(b, num(b, 1.0), w), half)));
}
Value* no_infinity(B64& b, Value* x, Value* r) { return pick(b, is(b, b.fabs(x), INFINITY), num(b, NAN), r); }

Value* sin_cos(B64& b, Value* x, int shift) {
  Angle a = reduce(b, x);
  Value* q = b.B.CreateAdd(a.quadrant, b.integer(a.quadrant, shift));
  Value* odd = b.B.CreateICmpNE(b.B.CreateAnd(q, b.integer(q, 1)), b.integer(q, 0));
  Value* out = pick(b, odd, cosine(b, a.r), sine(b, a.r));
  Value* minus = b.B.CreateICmpNE(b.B.CreateAnd(q, b.integer(q, 2)), b.integer(q, 0));
  out = pick(b, minus, neg(b, out), out);
  if (!shift) out = pick(b, is(b, x, 0.0), x, out);
  return no_infinity(b, x, out);
}
Value* sin(B64& b, Value* x) { return sin_cos(b, x, 0); }
Value* cos(B64& b, Value* x) { return sin_cos(b, x, 1); }
Value* tan(B64& b, Value* x) {
  Angle a = reduce(b, x);
  Value *s = sine(b, a.r), *c = cosine(b, a.r);
  Value* odd = b.B.CreateICmpNE(b.B.CreateAnd(a.quadrant, b.integer(a.quadrant, 1)), b.integer(a.quadrant, 0));
  Value* out = div(b, pick(b, odd, neg(b, c), s), pick(b, odd, s, c));
  out = pick(b, is(b, x, 0.0), x, out);
  return no_infinity(b, x, out);
}

// The arc tangent of n / d, both positive: at one of four points, and of what is left.
Value* atan_ratio(B64& b, Value* n, Value* d) {
  Value* x = div(b, n, d);
  Value *a = x, *top = x, *bottom = num(b, 1.0), *high = num(b, 0.0), *low = num(b, 0.0);
  auto piece = [&](double from, Value* t, Value* u, double h, double l) {
    Value* in = b.B.CreateFCmpOGE(a, num(b, from));
    top = pick(b, in, t, top), bottom = pick(b, in, u, bottom), high = pick(b, in, num(b, h), high),
    low = pick(b, in, num(b, l), low);
  };
  Value* one = num(b, 1.0);
  piece(0.4375, sub(b, add(b, x, x), one), add(b, x, num(b, 2.0)), 4.63647609000806093515e-01,
        2.26987774529616870924e-17);
  piece(0.6875, sub(b, x, one), add(b, x, one), 7.85398163397448278999e-01, 3.06161699786838301793e-17);
  piece(1.1875, sub(b, x, num(b, 1.5)), b.fma(x, num(b, 1.5), one), 9.82793723247329054082e-01,
        1.39033110312309984516e-17);
  piece(2.4375, num(b, -1.0), x, 1.57079632679489655800e+00, 6.12323399573676603587e-17);
  Value* t = div(b, top, bottom);
  Value* z = mul(b, t, t);
  Value* p = b.horner(z, {1.62858201153657823623e-02, -3.65315727442169155270e-02, 4.97687799461593236017e-02,
                          -5.83357013379057348645e-02, 6.66107313738753120669e-02, -7.69187620504482999495e-02,
                          9.09088713343650656196e-02, -1.11111104054623557880e-01, 1.42857142725034663711e-01,
                          -1.99999999998764832476e-01, 3.33333333333329318027e-01});
  Value* small = sub(b, mul(b, t, mul(b, z, p)), low);
  return sub(b, high, sub(b, small, t));
}
Value* atan(B64& b, Value* x) { return b.copysign(atan_ratio(b, b.fabs(x), num(b, 1.0)), x); }
Value* asin(B64& b, Value* x) {
  Value* t = b.fabs(x);
  Value* c = sqrt(b, mul(b, sub(b, num(b, 1.0), t), add(b, num(b, 1.0), t)));
  return b.copysign(atan_ratio(b, t, c), x);
}
Value* acos(B64& b, Value* x) {
  Value* n = sqrt(b, sub(b, num(b, 1.0), x));
  Value* d = sqrt(b, add(b, num(b, 1.0), x));
  Value* half = atan_ratio(b, n, d);
  return add(b, half, half);
}
Value* atan2(B64& b, Value* y, Value* x) {
  Value *ay = b.fabs(y), *ax = b.fabs(x);
  Value* r = atan_ratio(b, ay, ax);
  Value* both_infinite = b.B.CreateAnd(is(b, ax, INFINITY), is(b, ay, INFINITY));
  r = pick(b, both_infinite, num(b, 0.78539816339744830962), r);
  r = pick(b, is(b, ay, 0.0), num(b, 0.0), r);
  Value* left = b.B.CreateICmpSLT(b.bits(x), b.B.getInt64(0));
  r = pick(b, left, sub(b, num(b, 3.14159265358979311600e+00), sub(b, r, num(b, 1.2246467991473532e-16))), r);
  r = b.copysign(r, y);
  return pick(b, b.B.CreateFCmpUNO(x, y), add(b, x, y), r);
}

// ------------------------------------------------------------------ hyperbolic functions
Value* sinh(B64& b, Value* x) {
  Value* t = b.fabs(x);
  Value* m = expm1(b, b.at_most(num(b, 40.0), t));
  Value* small = mul(b, num(b, 0.5), add(b, m, div(b, m, add(b, m, num(b, 1.0)))));
  Value* h = exp(b, mul(b, num(b, 0.5), t));
  return b.copysign(pick(b, greater(b, t, 22.0), mul(b, mul(b, num(b, 0.5), h), h), small), x);
}
Value* cosh(B64& b, Value* x) {
  Value* t = b.fabs(x);
  Value* e = exp(b, b.at_most(num(b, 40.0), t));
  Value* small = b.fma(num(b, 0.5), e, div(b, num(b, 0.5), e));
  Value* h = exp(b, mul(b, num(b, 0.5), t));
  return pick(b, greater(b, t, 22.0), mul(b, mul(b, num(b, 0.5), h), h), small);
}
Value* tanh(B64& b, Value* x) {
  Value* t = b.fabs(x);
  Value* m = expm1(b, b.at_most(num(b, 60.0), add(b, t, t)));
  return b.copysign(div(b, m, add(b, m, num(b, 2.0))), x);
}
Value* asinh(B64& b, Value* x) {
  Value* t = b.fabs(x);
  Value* s = mul(b, t, t);
  Value* small = log1p(b, add(b, t, div(b, s, add(b, num(b, 1.0), sqrt(b, add(b, num(b, 1.0), s))))));
  Value* large = add(b, log(b, t), num(b, 6.93147180559945286227e-01));
  return b.copysign(pick(b, greater(b, t, 268435456.0), large, small), x);
}
Value* acosh(B64& b, Value* x) {
  Value* t = sub(b, x, num(b, 1.0));
  Value* small = log1p(b, add(b, t, sqrt(b, b.fma(t, t, add(b, t, t)))));
  Value* large = add(b, log(b, x), num(b, 6.93147180559945286227e-01));
  Value* r = pick(b, greater(b, x, 268435456.0), large, small);
  return pick(b, less(b, x, 1.0), num(b, NAN), r);
}
Value* atanh(B64& b, Value* x) {
  Value* t = b.fabs(x);
  Value* r = mul(b, num(b, 0.5), log1p(b, div(b, add(b, t, t), sub(b, num(b, 1.0), t))));
  return b.copysign(r, x);
}

// ------------------------------------------------------------------ the error function
// exp(x^2) erfc(x) for x in [0, 28]: (1 + 2x) times it is a polynomial of degree 23 in u, which is linear in
// (x - 3.75) / (x + 3.75); interpolated at Chebyshev's points, relative error 2^-55.
Value* scaled_erfc(B64& b, Value* x) {
  Value* t = div(b, sub(b, x, num(b, 3.75)), add(b, x, num(b, 3.75)));
  Value* u = b.fma(t, num(b, 1.133928571428571428571429), num(b, 0.1339285714285714285714286));
  Value* p =
      b.horner(u, {-5.4141784888159407e-11, -1.4801577414451093e-10, 6.963810972864853e-10,  2.1862265190571295e-09,
                   -6.111121466992206e-09,  -2.107765157561842e-08,  5.6098206857671387e-08, 1.7541533564862759e-07,
                   -6.134424897057184e-07,  -1.1835986068534048e-06, 7.472764985820993e-06,  9.064856335358849e-07,
                   -8.3453068846785e-05,    0.00020076187925757694,  0.0003778201011238177,  -0.004150791169926995,
                   0.01592052776625737,     -0.04053954209294104,    0.07635790530016805,    -0.10728411861801816,
                   0.10198698200412773,     -0.028294804466573526,   -0.12066783607454412,   1.2539674711853876});
  return div(b, p, b.fma(num(b, 2.0), x, num(b, 1.0)));
}
Value* erfc_positive(B64& b, Value* t) {
  Value* c = b.at_most(num(b, 28.0), t);
  Value* square = mul(b, c, c);
  Value* lost = b.fma(c, c, neg(b, square));
  return mul(b, exp_sum(b, neg(b, square), neg(b, lost)), scaled_erfc(b, c));
}
Value* erf_small(B64& b, Value* x) {  // |x| <= 1, relative error 2^-68
  Value* s = mul(b, x, x);
  Value* p = b.horner(s, {-4.230945824295338e-12, 8.709045129053106e-11, -1.216456005728345e-09, 1.4792401209404813e-08,
                          -1.6364642158167616e-07, 1.6462045441468418e-06, -1.4925647567519332e-05,
                          0.00012055332902888736, -0.000854832702193483, 0.0052239776254232985, -0.02686617064512984,
                          0.1128379167095512, -0.37612638903183754, 0.1283791670955126});
  return b.fma(x, p, x);
}
Value* erf(B64& b, Value* x) {
  Value* t = b.fabs(x);
  Value* large = b.copysign(sub(b, num(b, 1.0), erfc_positive(b, t)), x);
  return pick(b, greater(b, t, 1.0), large, erf_small(b, x));
}
Value* erfc(B64& b, Value* x) {
  Value* t = b.fabs(x);
  Value* tail = erfc_positive(b, t);
  Value* r = pick(b, less(b, x, 0.0), sub(b, num(b, 2.0), tail), tail);
  return pick(b, less(b, t, 0.5), sub(b, num(b, 1.0), erf_small(b, x)), r);
}

// ------------------------------------------------------------------ powers
// |x|^y = exp(y log|x|), the logarithm as a sum of two numbers; then C's rules for signs and special values.
Value* pow(B64& b, Value* x, Value* y) {
  Value* t = b.fabs(x);
  Log l = log_parts(b, t);
  // f / (2 + f) with its remainder.
  Value* g = add(b, l.f, num(b, 2.0));
  Value* g_low = sub(b, l.f, sub(b, g, num(b, 2.0)));
  Value* s_low = div(b, sub(b, b.fma(neg(b, l.s), g, l.f), mul(b, l.s, g_low)), g);
  // log(1 + f) = 2s + s * rest, rest = 2 s^2/3 + ...
  Value* two = add(b, l.s, l.s);
  Value* tail = b.fma(l.s, l.rest, add(b, s_low, s_low));
  auto sum = [&](Value* p, Value* q, Value*& low) {  // exact: s + error
    Value* r = add(b, p, q);
    Value* v = sub(b, r, p);
    low = add(b, low, add(b, sub(b, p, sub(b, r, v)), sub(b, q, v)));
    return r;
  };
  Value* low = b.fma(l.e, num(b, 1.90821492927058770002e-10), tail);
  Value* high = sum(mul(b, l.e, num(b, 6.93147180369123816490e-01)), two, low);
  Value* product = mul(b, high, y);
  Value* rest = b.fma(low, y, b.fma(high, y, neg(b, product)));
  // Where the product is out of range its rest may be no number.
  rest = pick(b, less(b, b.fabs(product), 800.0), rest, num(b, 0.0));
  Value* r = exp_sum(b, product, rest);
  Value* zero = is(b, t, 0.0);
  Value* infinite = is(b, t, INFINITY);
  Value* up = greater(b, y, 0.0);
  r = pick(b, zero, pick(b, up, num(b, 0.0), num(b, INFINITY)), r);
  r = pick(b, infinite, pick(b, up, num(b, INFINITY), num(b, 0.0)), r);
  // y infinite: by the side of 1 on which |x| is.
  Value* y_infinite = is(b, b.fabs(y), INFINITY);
  Value* grows = b.B.CreateXor(greater(b, t, 1.0), less(b, y, 0.0));
  Value* at_infinity = pick(b, is(b, t, 1.0), num(b, 1.0), pick(b, grows, num(b, INFINITY), num(b, 0.0)));
  r = pick(b, y_infinite, at_infinity, r);
  // Negative x: y must be an integer; odd ones keep the sign.
  Value* whole = b.B.CreateFCmpOEQ(b.B.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, y), y);
  Value* half = mul(b, y, num(b, 0.5));
  Value* odd = b.B.CreateAnd(whole, b.B.CreateFCmpUNE(b.B.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, half), half));
  Value* minus = b.B.CreateICmpSLT(b.bits(x), b.B.getInt64(0));
  r = pick(b, b.B.CreateAnd(minus, odd), neg(b, r), r);
  Value* no_value = b.B.CreateAnd(b.B.CreateAnd(less(b, x, 0.0), b.B.CreateNot(whole)),
                                  b.B.CreateNot(b.B.CreateOr(infinite, y_infinite)));
  r = pick(b, no_value, num(b, NAN), r);
  r = pick(b, b.B.CreateFCmpUNO(x, y), add(b, x, y), r);
  return pick(b, b.B.CreateOr(is(b, y, 0.0), is(b, x, 1.0)), num(b, 1.0), r);
}

struct Row {
  const char* name;
  Value* (*one)(B64&, Value*);
  Value* (*two)(B64&, Value*, Value*);
};
const Row kRows[] = {
    {"exp", exp, nullptr},     {"exp2", exp2, nullptr},   {"expm1", expm1, nullptr}, {"log", log, nullptr},
    {"log2", log2, nullptr},   {"log10", log10, nullptr}, {"log1p", log1p, nullptr}, {"sin", sin, nullptr},
    {"cos", cos, nullptr},     {"tan", tan, nullptr},     {"asin", asin, nullptr},   {"acos", acos, nullptr},
    {"atan", atan, nullptr},   {"sinh", sinh, nullptr},   {"cosh", cosh, nullptr},   {"tanh", tanh, nullptr},
    {"asinh", asinh, nullptr}, {"acosh", acosh, nullptr}, {"atanh", atanh, nullptr}, {"erf", erf, nullptr},
    {"erfc", erfc, nullptr},   {"pow", nullptr, pow},     {"atan2", nullptr, atan2},
};

// A loop that carries `values` while `go` holds of them.
using Carried = llvm::SmallVector<Value*, 4>;
Carried repeat(B64& b, Carried values, const std::function<Value*(Carried&)>& go,
               const std::function<void(Carried&)>& step) {
  auto* f = b.B.GetInsertBlock()->getParent();
  auto block = [&] { return llvm::BasicBlock::Create(b.context(), "", f); };
  llvm::BasicBlock *before = b.B.GetInsertBlock(), *head = block(), *body = block(), *after = block();
  b.B.CreateBr(head);
  b.B.SetInsertPoint(head);
  Carried phis;
  for (Value* v : values) {
    auto* phi = b.B.CreatePHI(v->getType(), 2);
    phi->addIncoming(v, before);
    phis.push_back(phi);
  }
  b.B.CreateCondBr(go(phis), body, after);
  b.B.SetInsertPoint(body);
  Carried next = phis;
  step(next);
  for (size_t i = 0; i < phis.size(); ++i)
    llvm::cast<llvm::PHINode>(phis[i])->addIncoming(next[i], b.B.GetInsertBlock());
  b.B.CreateBr(head);
  b.B.SetInsertPoint(after);
  return phis;
}

}  // namespace

Value* call(VectorBuilder& b, const std::string& name, llvm::ArrayRef<Value*> v) {
  for (const Row& row : kRows)
    if (name == row.name) return row.one ? row.one(b, v[0]) : row.two(b, v[0], v[1]);
  throw Unsupported(Reason::UnsupportedOp, "the function " + name + " in a GPU kernel");
}

// Long division: each turn subtracts a multiple of y times a power of two, with a quotient of at most 52 bits.
Value* fmod(VectorBuilder& b, Value* x, Value* y) {
  auto& B = b.B;
  Value* d = b.fabs(y);
  Value* r0 = b.fabs(x);
  Value* proper = B.CreateAnd(B.CreateFCmpOLT(r0, num(b, INFINITY)), B.CreateFCmpOGT(d, num(b, 0.0)));
  Value* start = pick(b, proper, r0, num(b, 0.0));
  Carried out = repeat(
      b, {start}, [&](Carried& c) { return B.CreateFCmpOGE(c[0], d); },
      [&](Carried& c) {
        Value* r = c[0];
        auto exponent = [&](Value* v) { return B.CreateLShr(b.bits(v), B.getInt64(52)); };
        Value* shift = B.CreateSub(B.CreateSub(exponent(r), exponent(d)), B.getInt64(50));
        shift = B.CreateSelect(B.CreateICmpSGT(shift, B.getInt64(0)), shift, B.getInt64(0));
        // y times 2^shift, in two exact steps, as the power alone may be out of range.
        Value* t = scale(b, d, B.CreateSIToFP(shift, b.f64()));
        Value* q = B.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, div(b, r, t));
        Value* left = b.fma(neg(b, q), t, r);
        c[0] = pick(b, less(b, left, 0.0), add(b, left, t), left);
      });
  Value* r = b.copysign(out[0], x);
  Value* bad = B.CreateOr(B.CreateOr(B.CreateFCmpUNO(x, y), is(b, r0, INFINITY)), is(b, d, 0.0));
  return pick(b, bad, num(b, NAN), r);
}

Value* integer_power(VectorBuilder& b, Value* x, Value* y) {
  auto& B = b.B;
  auto c = [&](int64_t n) { return B.getInt64(static_cast<uint64_t>(n)); };
  Value* negative = B.CreateICmpSLT(y, c(0));
  Carried out = repeat(
      b, {c(1), x, B.CreateSelect(negative, c(0), y)}, [&](Carried& v) { return B.CreateICmpNE(v[2], c(0)); },
      [&](Carried& v) {
        Value* odd = B.CreateICmpNE(B.CreateAnd(v[2], c(1)), c(0));
        v[0] = B.CreateSelect(odd, B.CreateMul(v[0], v[1]), v[0]);
        v[1] = B.CreateMul(v[1], v[1]);
        v[2] = B.CreateLShr(v[2], c(1));
      });
  Value* sign = B.CreateSelect(B.CreateICmpEQ(B.CreateAnd(y, c(1)), c(0)), c(1), c(-1));
  Value* inverse = B.CreateSelect(B.CreateICmpEQ(x, c(1)), c(1), B.CreateSelect(B.CreateICmpEQ(x, c(-1)), sign, c(0)));
  return B.CreateSelect(negative, inverse, out[0]);
}

}  // namespace braze::codegen::nvptx::math64
