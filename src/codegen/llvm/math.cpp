#include "codegen/llvm/math.h"

#include <cmath>

#include "base/check.h"
#include "codegen/llvm/math64.h"
#include "codegen/llvm/pieces.h"

namespace braze::codegen::ir {
namespace {

using loop::OpCode;

constexpr double kLog2E = 1.4426950408889634;

// x * factor rounded to a whole number n below 2^21, ties to even: what is added to 1.5 * 2^23 is one, in the low bits.
struct Whole {
  Value* y;  // n + move in its low bits
  Value* n;
};
Whole whole(VectorBuilder& b, Value* x, double factor, Value* magic, Value* most = nullptr) {
  Value* y = factor == 1 ? b.B.CreateFAdd(x, magic) : b.fma(x, b.num(x, factor), magic);
  if (most) y = b.at_most(most, y);
  return {y, b.B.CreateFSub(y, magic)};
}
Value* magic(VectorBuilder& b, Value* like, int move) { return b.num(like, 12582912.0 + move); }

// How 2^n is formed without instructions for it: as 2^(n + move), which is a normal number whose exponent are bits of a
// `Whole`, and 2^-move, with which all is rounded at last. `gone`: lanes of which nothing is left (null: not asked).
struct Move {
  Value *magic, *last, *gone = nullptr;
};
constexpr int kExponent = 127;
Move by(VectorBuilder& b, Value* like, int move) {
  return {magic(b, like, kExponent + move), b.num(like, std::ldexp(1.0, -move))};
}
// The lanes below what has 2^-150 for its power, so that the result is rounded to 0.
Value* gone_below(VectorBuilder& b, Value* x, double least) {
  return b.slow_underflow() ? b.B.CreateFCmpOLT(x, b.num(x, least)) : nullptr;
}
constexpr double kLeastExp = -103.97208, kLeastExp2 = -150;
// Below, 1 + exp(-x) is infinite, and eager's sigmoid 0.
constexpr double kLeastSigmoid = -88.722839;
// Of n in [-157, 129] that is above 0 only where x is not negative.
Move by_sign_of(VectorBuilder& b, Value* x, double least) {
  Value* gone = gone_below(b, x, least);
  if (b.has_native_scale(x)) return {magic(b, x, 0), nullptr, gone};
  Value* below = b.B.CreateICmpSLT(b.bits(x), b.integer(VectorBuilder::like(x, b.i32()), 0));
  const Move down = by(b, x, 32), up = by(b, x, -2);
  return {b.B.CreateSelect(below, down.magic, up.magic), b.B.CreateSelect(below, down.last, up.last), gone};
}
Value* exponent_bits(VectorBuilder& b, Value* y) {
  Value* i = b.bits(y);
  return b.B.CreateShl(i, b.integer(i, 23));
}
Value* power(VectorBuilder& b, const Whole& moved) { return b.unbits(exponent_bits(b, moved.y)); }

// p * 2^n for p near 1, rounded once, also where the result is denormal.
Value* scale(VectorBuilder& b, Value* p, const Whole& w, const Move& move) {
  if (b.has_native_scale(p)) return b.native_scale(p, w.n, move.gone);
  Value* last = move.gone ? b.B.CreateSelect(move.gone, b.num(p, 0.0), move.last) : move.last;
  return b.B.CreateFMul(b.B.CreateFMul(p, power(b, w)), last);
}

// exp(r) - 1 for |r| <= ln(2)/2, to 2^-31 of itself.
Value* exp_tail(VectorBuilder& b, Value* r) {
  Value* square = b.B.CreateFMul(r, r);
  Value* p =
      b.two_chains(r, square, {1.9944254e-4, 1.39327103e-3, 8.33320804e-3, 4.16664891e-2, 1.66666672e-1, 5.0e-1});
  return b.fma(p, square, r);
}

struct Reduced {
  Whole n;
  Value* r;  // x = n * ln(2) + r
};
// most: of the sum with `magic`, so that no larger multiple is taken; what is more stays in r. Null: any.
Reduced reduce_ln2(VectorBuilder& b, Value* x, Value* magic, Value* most = nullptr) {
  Whole w = whole(b, x, kLog2E, magic, most);
  Value* r = b.fma(w.n, b.num(x, -0.693359375), x);
  return {w, b.fma(w.n, b.num(x, 2.12194440e-4), r)};
}

// exp(x) for x whose power needs no other move.
Value* exp_moved(VectorBuilder& b, Value* x, const Move& move) {
  auto [n, r] = reduce_ln2(b, x, move.magic);
  return scale(b, b.B.CreateFAdd(exp_tail(b, r), b.num(x, 1.0)), n, move);
}

Value* exp(VectorBuilder& b, Value* x) {
  x = b.at_least(b.num(x, -104.5), b.at_most(b.num(x, 89.0), x));
  return exp_moved(b, x, by_sign_of(b, x, kLeastExp));
}

Value* exp2(VectorBuilder& b, Value* x) {
  x = b.at_least(b.num(x, -151.0), b.at_most(b.num(x, 129.0), x));
  const Move move = by_sign_of(b, x, kLeastExp2);
  const Whole w = whole(b, x, 1, move.magic);
  // The product with ln(2) in two parts, as its rounding error is multiplied by the result.
  Value* f = b.B.CreateFSub(x, w.n);
  Value* r = b.B.CreateFMul(f, b.num(x, 0.6931471805599453));
  Value* low = b.fma(f, b.num(x, 0.6931471805599453), b.B.CreateFNeg(r));
  return scale(b, b.B.CreateFAdd(b.B.CreateFAdd(exp_tail(b, r), low), b.num(x, 1.0)), w, move);
}

Value* expm1(VectorBuilder& b, Value* x) {
  Value* c = b.at_least(b.num(x, -20.0), b.at_most(b.num(x, 88.8), x));
  auto [n, r] = reduce_ln2(b, c, magic(b, x, kExponent - 1));
  Value* t = exp_tail(b, r);
  // 2^n (1 + t) - 1 through 2^(n-1), which does not overflow before the result does.
  Value* s = power(b, n);
  Value* half = b.fma(s, t, b.B.CreateFSub(s, b.num(x, 0.5)));
  return b.copysign(b.B.CreateFAdd(half, half), x);
}

// exp(|x|) / 2, which does not overflow before the result does.
Value* half_exp(VectorBuilder& b, Value* x) {
  auto [n, r] = reduce_ln2(b, b.at_most(b.num(x, 90.0), b.fabs(x)), magic(b, x, kExponent - 3));
  return b.B.CreateFMul(b.B.CreateFMul(b.B.CreateFAdd(exp_tail(b, r), b.num(x, 1.0)), power(b, n)), b.num(x, 4.0));
}

Value* cosh(VectorBuilder& b, Value* x) {
  Value* h = half_exp(b, x);
  return b.B.CreateFAdd(h, b.B.CreateFDiv(b.num(x, 0.25), h));
}

Value* sinh(VectorBuilder& b, Value* x) {
  Value* s = b.B.CreateFMul(x, x);
  // The series: five terms are exact to 2^-32 up to 1.
  Value* p = b.horner(s, {2.505210838544172e-8, 2.755731922398589e-6, 1.984126984126984e-4, 8.333333333333333e-3,
                          1.6666666666666666e-1});
  Value* small = b.fma(b.B.CreateFMul(p, s), x, x);
  Value* h = half_exp(b, x);
  Value* large = b.B.CreateFSub(h, b.B.CreateFDiv(b.num(x, 0.25), h));
  // The sign last: the small form gives +0 for -0.
  return b.copysign(b.B.CreateSelect(b.B.CreateFCmpOGT(b.fabs(x), b.num(x, 1.0)), large, small), x);
}

struct Log {
  Value *f, *y, *e;  // log(x) = (f + y) + e ln(2), f = m - 1 exact
};
Log log_parts(VectorBuilder& b, Value* x) {
  Value* tiny = b.B.CreateFCmpOLT(x, b.num(x, 1.17549435e-38));
  Value* scaled = b.B.CreateSelect(tiny, b.B.CreateFMul(x, b.num(x, 8388608.0)), x);
  Value* i = b.bits(scaled);
  Value* e = b.B.CreateAShr(b.B.CreateSub(i, b.integer(i, 0x3f3504f3)), b.integer(i, 23));
  Value* m = b.unbits(b.B.CreateSub(i, b.B.CreateShl(e, b.integer(e, 23))));
  Value* ef = b.B.CreateSIToFP(e, x->getType());
  ef = b.B.CreateSelect(tiny, b.B.CreateFSub(ef, b.num(x, 23.0)), ef);
  Value* f = b.B.CreateFSub(m, b.num(x, 1.0));
  Value* z = b.B.CreateFMul(f, f);
  Value* p = b.two_chains(f, z,
                          {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                           -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1});
  Value* y = b.B.CreateFMul(b.B.CreateFMul(f, z), p);
  return {f, b.fma(z, b.num(x, -0.5), y), ef};
}

// The values that the polynomial does not see: 0, negative, infinity, NaN.
Value* log_special(VectorBuilder& b, Value* x, Value* r) {
  r = b.B.CreateSelect(b.B.CreateFCmpOEQ(x, b.num(x, INFINITY)), x, r);
  r = b.B.CreateSelect(b.B.CreateFCmpOEQ(x, b.num(x, 0.0)), b.num(x, -INFINITY), r);
  return b.B.CreateSelect(b.B.CreateFCmpULT(x, b.num(x, 0.0)), b.num(x, NAN), r);
}

Value* log_positive(VectorBuilder& b, Value* x) {
  Log l = log_parts(b, x);
  Value* y = b.fma(l.e, b.num(x, -2.12194440e-4), l.y);
  return b.fma(l.e, b.num(x, 0.693359375), b.B.CreateFAdd(l.f, y));
}

Value* log(VectorBuilder& b, Value* x) { return log_special(b, x, log_positive(b, x)); }

Value* log2(VectorBuilder& b, Value* x) {
  Log l = log_parts(b, x);
  // log2(e) = 1.4375 + rest: the product of the leading part with f is nearly exact.
  Value* low = b.B.CreateFMul(l.y, b.num(x, 0.00519504088896341));
  low = b.fma(l.f, b.num(x, 0.00519504088896341), low);
  low = b.fma(l.y, b.num(x, 1.4375), low);
  return log_special(b, x, b.B.CreateFAdd(b.fma(l.f, b.num(x, 1.4375), low), l.e));
}

Value* log10(VectorBuilder& b, Value* x) {
  Log l = log_parts(b, x);
  Value* low = b.B.CreateFMul(l.e, b.num(x, 2.48745663981195213739e-4));
  low = b.fma(l.y, b.num(x, 7.00731903251827651129e-4), low);
  low = b.fma(l.f, b.num(x, 7.00731903251827651129e-4), low);
  low = b.fma(l.y, b.num(x, 4.3359375e-1), low);
  low = b.fma(l.f, b.num(x, 4.3359375e-1), low);
  return log_special(b, x, b.fma(l.e, b.num(x, 3.00781250e-1), low));
}

Value* log1p(VectorBuilder& b, Value* x) {
  Value* one = b.num(x, 1.0);
  Value* u = b.B.CreateFAdd(x, one);
  // What rounding took from u.
  Value* lost = b.B.CreateSelect(b.B.CreateFCmpOGE(x, one), b.B.CreateFSub(one, b.B.CreateFSub(u, x)),
                                 b.B.CreateFSub(x, b.B.CreateFSub(u, one)));
  Log l = log_parts(b, u);
  Value* y = b.fma(l.e, b.num(x, -2.12194440e-4), b.B.CreateFAdd(l.y, b.B.CreateFDiv(lost, u)));
  Value* r = b.fma(l.e, b.num(x, 0.693359375), b.B.CreateFAdd(l.f, y));
  r = log_special(b, u, r);
  return b.B.CreateSelect(b.B.CreateFCmpOEQ(u, one), x, r);
}

// n / (d + low) for d in [1, 2] and what rounding took from it: one step of Newton's from a reciprocal of 14 bits or
// more.
Value* quotient(VectorBuilder& b, Value* n, Value* d, Value* low) {
  Value* r = b.native_reciprocal(d);
  if (!r) r = b.B.CreateFDiv(b.num(d, 1.0), d);
  Value* q = b.B.CreateFMul(n, r);
  Value* rest = b.fma(b.B.CreateFNeg(low), q, b.fma(b.B.CreateFNeg(d), q, n));
  return b.fma(rest, r, q);
}

// 1 / (2^n t + 1 + 2^n), where -x = n ln(2) + r and t = exp(r) - 1: within 2 units in the last place, the 1 added
// before the power, so that it counts where that is 2^24. From n = 127 on what remains of -x goes into the polynomial,
// so that the sum becomes infinite where eager's does.
Value* sigmoid_divided(VectorBuilder& b, Value* x) {
  Value *one = b.num(x, 1.0), *minus_x = b.B.CreateFNeg(b.at_most(b.num(x, 30.0), x));
  auto [n, r] = reduce_ln2(b, minus_x, magic(b, x, kExponent), magic(b, x, kExponent + 127));
  Value* s = power(b, n);
  return b.B.CreateFDiv(one, b.B.CreateFAdd(b.fma(s, exp_tail(b, r), one), s));
}

// Through exp(-|x|), so that the divisor lies in [1, 2].
Value* sigmoid(VectorBuilder& b, Value* x) {
  if (!b.has_native_scale(x)) return sigmoid_divided(b, x);
  Value* one = b.num(x, 1.0);
  Value* t = b.at_least(b.num(x, -104.5), b.B.CreateFNeg(b.fabs(x)));
  Value* e = exp_moved(b, t, {magic(b, x, 0), nullptr, gone_below(b, t, kLeastSigmoid)});
  Value* above = b.B.CreateICmpSGE(b.bits(x), b.integer(VectorBuilder::like(x, b.i32()), 0));
  Value* d = b.B.CreateFAdd(e, one);
  Value* low = b.B.CreateFSub(e, b.B.CreateFSub(d, one));
  return quotient(b, b.B.CreateSelect(above, one, e), d, low);
}

// exp(-y), 1 - exp(-y) and 1 + exp(-y) for y in [0, 20], of each of which the last step rounds once.
struct BesideOne {
  Value *itself, *less, *more;
};
BesideOne beside_one(VectorBuilder& b, const Reduced& reduced) {
  Value *one = b.num(reduced.r, 1.0), *s = power(b, reduced.n), *t = exp_tail(b, reduced.r);
  return {b.fma(s, t, s), b.fma(b.B.CreateFNeg(s), t, b.B.CreateFSub(one, s)), b.fma(s, t, b.B.CreateFAdd(one, s))};
}

// (1 - exp(-2|x|)) / (1 + exp(-2|x|)), and where that is near 1, as what is missing to it.
Value* tanh(VectorBuilder& b, Value* x) {
  if (has_pieces(b, x)) return tanh_pieces(b, x);
  Value* t = b.at_most(b.num(x, 10.0), b.fabs(x));
  const BesideOne e = beside_one(b, reduce_ln2(b, b.B.CreateFMul(t, b.num(x, -2.0)), magic(b, x, kExponent)));
  Value* near = b.B.CreateFCmpOGT(t, b.num(x, 0.6));
  Value* q = b.B.CreateFDiv(b.B.CreateSelect(near, e.itself, e.less), e.more);
  return b.with_sign(b.B.CreateSelect(near, b.fma(b.num(x, -2.0), q, b.num(x, 1.0)), q), x);
}

// 1 - exp(-y), where y = |x| + |x| q(|x|), with q by a fit on [0, 4] whose error weighs as the result's.
Value* erf(VectorBuilder& b, Value* x) {
  if (has_pieces(b, x)) return erf_pieces(b, x);
  Value* t = b.at_most(b.num(x, 4.0), b.fabs(x));
  Value* q = b.two_chains(t, b.B.CreateFMul(t, t),
                          {-9.38705398e-6, 1.18855001e-4, -6.3734717e-4, 1.67565735e-3, -1.69494218e-4, -1.91478245e-2,
                           1.02776304e-1, 6.36619568e-1, 1.28379166e-1});
  Value* y = b.fma(q, t, t);
  // One constant is enough: the multiple is none where the result is small.
  const Whole n = whole(b, y, -kLog2E, magic(b, x, kExponent));
  Value* r = b.fma(n.n, b.num(x, -0.6931471805599453), b.B.CreateFNeg(y));
  return b.with_sign(beside_one(b, {n, r}).less, x);
}

// sin(x) or cos(x): the argument reduced in double, where the products are exact enough up to 2^27.
Value* sin_cos(VectorBuilder& b, Value* x, bool cosine) {
  constexpr double kLimit = 134217728.0;
  Type* wide = VectorBuilder::like(x, b.f64());
  Value* xd = b.B.CreateFPExt(x, wide);
  Value* n = b.round_even(b.B.CreateFMul(xd, b.num(wide, 0.63661977236758134308)));
  Value* r = b.fma(n, b.num(wide, -1.5707963267948966), xd);
  r = b.fma(n, b.num(wide, -6.123233995736766e-17), r);
  Value* q = b.B.CreateFPToSI(n, VectorBuilder::like(x, b.i32()));
  q = b.B.CreateFreeze(q);
  if (cosine) q = b.B.CreateAdd(q, b.integer(q, 1));
  Value* f = b.B.CreateFPTrunc(r, x->getType());
  Value* s = b.B.CreateFMul(f, f);
  Value* sine =
      b.horner(s, {2.718311493989822e-6, -1.9839334836096632e-4, 8.333329385889463e-3, -1.6666666607856405e-1});
  sine = b.fma(b.B.CreateFMul(sine, s), f, f);
  Value* cosi = b.horner(s, {2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2, -0.5});
  cosi = b.fma(cosi, s, b.num(x, 1.0));
  Value* odd = b.B.CreateICmpNE(b.B.CreateAnd(q, b.integer(q, 1)), b.integer(q, 0));
  Value* out = b.B.CreateSelect(odd, cosi, sine);
  Value* sign = b.B.CreateShl(b.B.CreateAnd(q, b.integer(q, 2)), b.integer(q, 30));
  out = b.unbits(b.B.CreateXor(b.bits(out), sign));
  if (!cosine) out = b.B.CreateSelect(b.B.CreateFCmpOEQ(x, b.num(x, 0.0)), x, out);
  // Larger arguments are rare: the C library, behind a branch.
  Value* big = b.B.CreateFCmpOGT(b.fabs(x), b.num(x, kLimit));
  return b.rarely(big, out, [&] { return b.call_per_lane(cosine ? "cosf" : "sinf", b.f32(), {x}); });
}

constexpr double kPi = 3.14159265358979323846;

// z + z^3 P(z^2); coefficients by minimax fits of the relative error.
Value* odd_polynomial(VectorBuilder& b, Value* z, Value* s, std::initializer_list<double> p) {
  return b.fma(b.B.CreateFMul(b.horner(s, p), s), z, z);
}

Value* atan(VectorBuilder& b, Value* x) {
  Value *t = b.fabs(x), *one = b.num(x, 1.0);
  Value* big = b.B.CreateFCmpOGT(t, one);
  Value* z = b.B.CreateFDiv(b.B.CreateSelect(big, one, t), b.B.CreateSelect(big, t, one));
  Value* r = odd_polynomial(b, z, b.B.CreateFMul(z, z),
                            {-2.42356351e-3, 1.36559233e-2, -3.61159071e-2, 6.27121404e-2, -8.66695568e-2,
                             1.10363966e-1, -1.42789081e-1, 1.99997559e-1, -3.33333313e-1});
  return b.copysign(b.B.CreateSelect(big, b.B.CreateFSub(b.num(x, kPi / 2), r), r), x);
}

// asin(|x|) for |x| <= 1/2, else asin(sqrt((1 - |x|) / 2)) = acos(|x|) / 2.
struct HalfAngle {
  Value *big, *r;
};
HalfAngle half_angle(VectorBuilder& b, Value* x) {
  Value* t = b.fabs(x);
  Value* big = b.B.CreateFCmpOGT(t, b.num(x, 0.5));
  Value* s = b.B.CreateSelect(big, b.fma(t, b.num(x, -0.5), b.num(x, 0.5)), b.B.CreateFMul(t, t));
  Value* z = b.B.CreateSelect(big, b.B.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, s), t);
  return {big, odd_polynomial(b, z, s, {3.81963551e-2, 2.64993384e-2, 4.50099073e-2, 7.49881342e-2, 1.66666731e-1})};
}

Value* asin(VectorBuilder& b, Value* x) {
  HalfAngle h = half_angle(b, x);
  return b.copysign(b.B.CreateSelect(h.big, b.fma(h.r, b.num(x, -2.0), b.num(x, kPi / 2)), h.r), x);
}

Value* acos(VectorBuilder& b, Value* x) {
  HalfAngle h = half_angle(b, x);
  Value* twice = b.B.CreateFAdd(h.r, h.r);
  Value* far = b.B.CreateSelect(b.B.CreateFCmpOLT(x, b.num(x, 0.0)), b.B.CreateFSub(b.num(x, kPi), twice), twice);
  return b.B.CreateSelect(h.big, far, b.B.CreateFSub(b.num(x, kPi / 2), b.copysign(h.r, x)));
}

// asinh and acosh, whose squares the library lets overflow: from here on they are log(2 |x|).
Value* area_function(VectorBuilder& b, const char* name, Value* x) {
  bool wide = x->getType()->getScalarType()->isDoubleTy();
  Value* t = b.fabs(x);
  Value* big = b.B.CreateFCmpOGT(t, b.num(x, wide ? 1e100 : 1e15));
  Value* plain = b.call_library(name, {b.B.CreateSelect(big, b.num(x, 1.0), x)});
  Value* large = b.B.CreateFAdd(wide ? b.call_library("log", {t}) : log(b, t), b.num(x, 0.6931471805599453));
  bool even = name[1] == 'c';
  large = even ? b.B.CreateSelect(b.B.CreateFCmpOLT(x, b.num(x, 0.0)), b.num(x, NAN), large) : b.copysign(large, x);
  return b.B.CreateSelect(big, large, plain);
}

// sinh and cosh of doubles: the library's vectors overflow before the result does.
Value* wide_hyperbolic(VectorBuilder& b, const char* name, Value* x) {
  Value* plain = b.call_library(name, {x});
  if (!VectorBuilder::is_vector(x)) return plain;
  Value* t = b.fabs(x);
  Value* far = b.B.CreateFCmpOGT(t, b.num(x, 709.0));
  return b.rarely(far, plain, [&] {
    Value* root = b.call_library("exp", {b.B.CreateFMul(t, b.num(x, 0.5))});
    Value* large = b.B.CreateFMul(b.B.CreateFMul(root, b.num(x, 0.5)), root);
    if (name[0] == 's') large = b.copysign(large, x);
    return b.B.CreateSelect(far, large, plain);
  });
}

struct Row {
  OpCode code;
  Value* (*f32)(VectorBuilder&, Value*);  // nullptr: of the library
  const char* name;                       // in C
  bool own64 = true;                      // of doubles, too, own ones are faster than the library's
};
const Row kRows[] = {
    {OpCode::Exp, exp, "exp"},
    {OpCode::Exp2, exp2, "exp2"},
    {OpCode::Expm1, expm1, "expm1"},
    {OpCode::Log, log, "log"},
    {OpCode::Log2, log2, "log2"},
    {OpCode::Log10, log10, "log10"},
    {OpCode::Log1p, log1p, "log1p"},
    {OpCode::Sin, [](VectorBuilder& b, Value* x) { return sin_cos(b, x, false); }, "sin"},
    {OpCode::Cos, [](VectorBuilder& b, Value* x) { return sin_cos(b, x, true); }, "cos"},
    {OpCode::Tan, nullptr, "tan"},
    {OpCode::Asin, asin, "asin", false},
    {OpCode::Acos, acos, "acos", false},
    {OpCode::Atan, atan, "atan"},
    {OpCode::Sinh, sinh, "sinh"},
    {OpCode::Cosh, cosh, "cosh"},
    {OpCode::Tanh, tanh, "tanh"},
    {OpCode::Asinh, nullptr, "asinh"},
    {OpCode::Acosh, nullptr, "acosh"},
    {OpCode::Atanh, nullptr, "atanh"},
    {OpCode::Erf, erf, "erf"},
    {OpCode::Erfc, nullptr, "erfc"},
    {OpCode::Sigmoid, sigmoid, nullptr},
    {OpCode::Pow, nullptr, "pow"},
    {OpCode::Atan2, nullptr, "atan2"},
};
const Row* find(OpCode code) {
  for (const Row& row : kRows)
    if (row.code == code) return &row;
  return nullptr;
}

// Powers that eager, too, computes as products.
Value* constant_power(VectorBuilder& b, Value* x, Value* y) {
  auto* c = llvm::dyn_cast<llvm::Constant>(y);
  if (c && c->getType()->isVectorTy()) c = c->getSplatValue();
  auto* f = llvm::dyn_cast_or_null<llvm::ConstantFP>(c);
  if (!f) return nullptr;
  if (f->isExactlyValue(1.0)) return x;
  if (f->isExactlyValue(2.0)) return b.B.CreateFMul(x, x);
  if (f->isExactlyValue(3.0)) return b.B.CreateFMul(b.B.CreateFMul(x, x), x);
  if (f->isExactlyValue(-1.0)) return b.B.CreateFDiv(b.num(x, 1.0), x);
  if (f->isExactlyValue(-2.0)) return b.B.CreateFDiv(b.num(x, 1.0), b.B.CreateFMul(x, x));
  return nullptr;
}

}  // namespace

bool is_math(OpCode code) { return find(code); }

Value* emit_math(VectorBuilder& b, OpCode code, Value* x, Value* y) {
  const Row* row = find(code);
  BRAZE_CHECK(row, "not an elementary function");
  Type* element = x->getType()->getScalarType();
  BRAZE_CHECK(element->isFloatTy() || element->isDoubleTy(), "elementary function of a value that is no float");
  if (code == OpCode::Pow)
    if (Value* v = constant_power(b, x, y)) return v;
  if (element->isFloatTy() && row->f32) return row->f32(b, x);
  if (code == OpCode::Sigmoid) {
    Value* e = emit_math(b, OpCode::Exp, b.B.CreateFNeg(x), nullptr);
    return b.B.CreateFDiv(b.num(x, 1.0), b.B.CreateFAdd(e, b.num(x, 1.0)));
  }
  llvm::SmallVector<Value*, 2> operands{x};
  if (y) operands.push_back(y);
  if (b.has_fma() && row->own64 && element->isDoubleTy()) return math64::call(b, row->name, operands);
  if (b.has_fma() && code == OpCode::Pow && element->isFloatTy()) return math64::float_pow(b, x, y);
  if (code == OpCode::Sinh || code == OpCode::Cosh) return wide_hyperbolic(b, row->name, x);
  if (code == OpCode::Asinh || code == OpCode::Acosh) return area_function(b, row->name, x);
  return b.call_library(row->name, operands);
}

}  // namespace braze::codegen::ir
