#include "codegen/llvm/math64.h"

#include <cmath>

#include "base/check.h"
#include "codegen/llvm/math64_parts.h"

namespace braze::codegen::ir::math64 {
namespace {

struct Reduced {
  Whole n;
  Value* r;  // x = n ln(2) + r
};
Reduced reduce_ln2(B64& b, Value* x, Value* magic) {
  Whole w = whole(b, x, 1.4426950408889634, magic);
  Value* r = b.fma(w.n, num(b, -kLn2), x);  // exact: a multiple of 2^-53 below 1/2
  return {w, b.fma(w.n, num(b, -kLn2Rest), r)};
}

constexpr std::initializer_list<double> kExpTail = {
    2.5000084425774371e-08, 2.7630248795880818e-07, 2.7557586290884422e-06, 2.4801493097828538e-05,
    0.00019841269506688846, 0.0013888888943631085,  0.0083333333334943988,  0.041666666666530155,
    0.16666666666666413,    0.50000000000000111};

// exp(r) - 1 for |r| <= ln(2)/2.
Value* exp_tail(B64& b, Value* r) {
  Value* square = mul(b, r, r);
  return b.fma(b.two_chains(r, square, kExpTail), square, r);
}
// The same by Horner's steps, which take longer and err less.
Value* exp_tail_closely(B64& b, Value* r) { return b.fma(b.horner(r, kExpTail), mul(b, r, r), r); }

Value* clamp(B64& b, Value* x, double lo, double hi) { return b.at_least(num(b, lo), b.at_most(num(b, hi), x)); }

// exp(x + low) for a small `low`.
Value* exp_sum(B64& b, Value* x, Value* low) {
  x = clamp(b, x, -750.0, 711.0);
  const Move move = by_sign_of(b, x, -745.1332191019412);
  auto [n, r] = reduce_ln2(b, x, move.magic);
  if (low) r = add(b, r, low);
  return scale(b, add(b, exp_tail(b, r), num(b, 1.0)), n, move);
}
Value* exp(B64& b, Value* x) { return exp_sum(b, x, nullptr); }

Value* exp2(B64& b, Value* x) {
  Value* c = clamp(b, x, -1080.0, 1025.0);
  const Move move = by_sign_of(b, c, -1075.0);
  const Whole n = whole(b, c, 1.0, move.magic);
  Value* f = sub(b, c, n.n);
  Value* r = mul(b, f, num(b, kLn2));
  Value* low = b.fma(f, num(b, kLn2), neg(b, r));
  low = b.fma(f, num(b, kLn2Rest), low);
  return scale(b, add(b, add(b, exp_tail(b, r), low), num(b, 1.0)), n, move);
}

Value* expm1(B64& b, Value* x) {
  auto [n, r] = reduce_ln2(b, clamp(b, x, -50.0, 710.0), magic(b, kExponent - 1));
  Value* t = exp_tail_closely(b, r);
  Value* s = power(b, n.k);  // 2^(n-1) does not overflow before the result does
  Value* half = b.fma(s, t, sub(b, s, num(b, 0.5)));
  return b.copysign(add(b, half, half), x);
}

struct Mantissa {
  Value *m, *e;  // x = m 2^e, m in [sqrt(1/2), sqrt(2)), for normal x above 0
};
Mantissa split_normal(B64& b, Value* x) {
  // Moved so that the exponent steps at sqrt(1/2), and stays positive: vectors of AVX2 do not shift signs.
  constexpr int64_t kRoot = 0x3fe6a09e667f3bcd, kOne = 0x3ff0000000000000;
  Value* i = b.B.CreateAdd(b.bits(x), b.integer(kOne - kRoot));
  Value* m = b.B.CreateAdd(b.B.CreateAnd(i, b.integer(0xfffffffffffff)), b.integer(kRoot));
  // Or'ed to the bits of 2^52, a whole number is what the double exceeds 2^52 by.
  Value* biased = b.B.CreateOr(b.B.CreateLShr(i, b.integer(52)), b.integer(0x4330000000000000));
  return {b.unbits(m), sub(b, b.unbits(biased), num(b, 0x1p52 + 1023))};
}
Mantissa split(B64& b, Value* x) {
  Value* tiny = less(b, x, 2.2250738585072014e-308);
  auto [m, e] = split_normal(b, pick(b, tiny, mul(b, x, num(b, 0x1p54)), x));
  return {m, pick(b, tiny, sub(b, e, num(b, 54.0)), e)};
}

struct Log {
  Value *f, *s, *half_square, *rest, *e;  // log(x) = f - (half_square - s (half_square + rest)) + e ln(2)
};
Log log_parts(B64& b, Value* x) {
  auto [m, e] = split(b, x);
  Value* f = sub(b, m, num(b, 1.0));
  Value* s = quotient(b, f, add(b, m, num(b, 1.0)));
  Value* z = mul(b, s, s);
  Value* rest = mul(b, z,
                    b.horner(z, {0.14795633720497225, 0.15314083922811386, 0.18183562949574, 0.22222198601094575,
                                 0.2857142874210159, 0.39999999999416025, 0.6666666666666734}));
  return {f, s, mul(b, num(b, 0.5), mul(b, f, f)), rest, e};
}

Value* log_special(B64& b, Value* x, Value* r) {
  r = pick(b, is(b, x, INFINITY), x, r);
  r = pick(b, is(b, x, 0.0), num(b, -INFINITY), r);
  return pick(b, b.B.CreateFCmpULT(x, num(b, 0.0)), num(b, NAN), r);
}

// `extra` is added to the small terms.
Value* log_sum(B64& b, const Log& l, Value* extra) {
  Value* low = mul(b, l.e, num(b, kLn2Rest));
  if (extra) low = add(b, low, extra);
  Value* inner = b.fma(l.s, add(b, l.half_square, l.rest), low);
  return b.fma(l.e, num(b, kLn2), sub(b, l.f, sub(b, l.half_square, inner)));
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

// ------------------------------------------------------------------ inverse circular functions
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
  Value* left = b.B.CreateICmpSLT(b.bits(x), b.integer(0));
  r = pick(b, left, sub(b, num(b, 3.14159265358979311600e+00), sub(b, r, num(b, 1.2246467991473532e-16))), r);
  r = b.copysign(r, y);
  return pick(b, b.B.CreateFCmpUNO(x, y), add(b, x, y), r);
}

// ------------------------------------------------------------------ hyperbolic functions
// exp(t) / 2 for t above 0, which does not overflow before the result does.
Value* half_exp(B64& b, Value* t) {
  auto [n, r] = reduce_ln2(b, b.at_most(num(b, 711.0), t), magic(b, kExponent - 3));
  return mul(b, mul(b, add(b, exp_tail(b, r), num(b, 1.0)), power(b, n.k)), num(b, 4.0));
}
Value* sinh(B64& b, Value* x) {
  Value* t = b.fabs(x);
  Value* m = expm1(b, b.at_most(num(b, 40.0), t));
  Value* small = mul(b, num(b, 0.5), add(b, m, div(b, m, add(b, m, num(b, 1.0)))));
  return b.copysign(pick(b, greater(b, t, 22.0), half_exp(b, t), small), x);
}
Value* cosh(B64& b, Value* x) {
  Value* h = half_exp(b, b.fabs(x));
  return add(b, h, div(b, num(b, 0.25), h));
}
Value* tanh(B64& b, Value* x) {
  Value* t = b.fabs(x);
  Value* m = expm1(b, b.at_most(num(b, 60.0), add(b, t, t)));
  return b.copysign(quotient(b, m, add(b, m, num(b, 2.0))), x);
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
Value* erf_small(B64& b, Value* x) {  // |x| <= 1, relative error 2^-62
  Value* s = mul(b, x, x);
  Value* p = b.horner(s, {5.9425346561461142e-11, -1.136409657951374e-09, 1.4657485677004739e-08,
                          -1.6349968511552523e-07, 1.6460967659553602e-06, -1.492559319828583e-05,
                          0.00012055331024638184, -0.0008548326978423318, 0.0052239776247756465, -0.026866170645072397,
                          0.11283791670954856, -0.37612638903183748, 0.12837916709551259});
  return b.fma(x, p, x);
}
// Beyond 1 the complement is below 0.16, and needs fewer bits than erfc does: a polynomial, without quotients.
Value* erf(B64& b, Value* x) {
  Value* t = b.fabs(x);
  Value* c = b.at_most(num(b, 6.0), t);
  Value* p =
      b.horner(sub(b, c, num(b, 3.5)),
               {1.2615653806785004e-12,  2.1220720672978059e-11,  1.6334187732995386e-10,  7.1297290247281422e-10,
                1.8388486086216197e-09,  2.1712581783923091e-09,  -1.5953246384203435e-09, -1.2160002854905569e-08,
                -1.4352644748485637e-08, -2.6388989184344292e-08, 1.0165432032807849e-07,  -3.7349502874244748e-07,
                1.8530560094593416e-06,  -8.2423698849499039e-06, 3.6171028967229653e-05,  -0.00015547386898898924,
                0.00065268634001661011,  -0.0026730737319759549,  0.01066113338237819,     -0.041323577827512399,
                0.15529365560703443});
  auto [n, r] = reduce_ln2(b, neg(b, mul(b, c, c)), magic(b, kExponent));
  Value* e = mul(b, add(b, exp_tail(b, r), num(b, 1.0)), power(b, n.k));
  Value* large = b.copysign(b.fma(neg(b, p), e, num(b, 1.0)), x);
  return pick(b, greater(b, t, 1.0), large, erf_small(b, x));
}
Value* erfc(B64& b, Value* x) {
  Value* t = b.fabs(x);
  Value* tail = erfc_positive(b, t);
  Value* r = pick(b, less(b, x, 0.0), sub(b, num(b, 2.0), tail), tail);
  return pick(b, less(b, t, 0.5), sub(b, num(b, 1.0), erf_small(b, x)), r);
}

// ------------------------------------------------------------------ powers
// log(x) for normal or denormal x above 0, as a sum of two numbers whose error is below 2^-66 of it: the first two
// terms of 2s + 2/3 s³ + ... with what their rounding takes.
struct Pair {
  Value *high, *low;
};
Pair log_pair(B64& b, Value* x) {
  constexpr double kLn2High = 6.93147180369123816490e-01, kLn2Low = 1.90821492927058770002e-10;  // times e is exact
  constexpr double kThird = 0x1.5555555555555p-1, kThirdLow = 0x1.5555555555555p-55;             // 2/3
  auto [m, e] = split(b, x);
  Value *f = sub(b, m, num(b, 1.0)), *g = add(b, m, num(b, 1.0));
  Value* s = quotient(b, f, g);
  Value* g_low = sub(b, m, sub(b, g, num(b, 1.0)));
  Value* s_low = div(b, sub(b, b.fma(neg(b, s), g, f), mul(b, s, g_low)), g);
  // Products with what rounding took from them.
  auto lost = [&](Value* p, Value* q, Value* product) { return b.fma(p, q, neg(b, product)); };
  Value* z = mul(b, s, s);
  Value* z_low = b.fma(add(b, s, s), s_low, lost(s, s, z));
  Value* c = mul(b, z, num(b, kThird));
  Value* c_low = b.fma(z_low, num(b, kThird), b.fma(z, num(b, kThirdLow), lost(z, num(b, kThird), c)));
  Value* cube = mul(b, c, s);
  Value* cube_low = b.fma(c_low, s, b.fma(c, s_low, lost(c, s, cube)));
  Value* rest = b.horner(z, {0.13195967076668222, 0.13256858047252962, 0.15386755539210331, 0.18181784407461271,
                             0.22222222519443793, 0.28571428570102375, 0.4000000000000225});
  Value* low = add(b, cube_low, add(b, s_low, s_low));
  low = b.fma(mul(b, z, z), mul(b, rest, s), b.fma(e, num(b, kLn2Low), low));
  auto sum = [&](Value* p, Value* q) {  // r + error = p + q; the error goes to the low part
    Value* r = add(b, p, q);
    Value* v = sub(b, r, p);
    low = add(b, low, add(b, sub(b, p, sub(b, r, v)), sub(b, q, v)));
    return r;
  };
  Value* high = sum(sum(mul(b, e, num(b, kLn2High)), add(b, s, s)), cube);
  Value* all = add(b, high, low);
  return {all, add(b, sub(b, high, all), low)};
}

// |x|^y = exp(y log|x|), then C's rules for signs and special values.
Value* pow(B64& b, Value* x, Value* y) {
  Value* t = b.fabs(x);
  auto [high, low] = log_pair(b, t);
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
  Value *integral = b.B.CreateFCmpOEQ(trunc(b, y), y), *half = mul(b, y, num(b, 0.5));
  Value* odd = b.B.CreateAnd(integral, b.B.CreateFCmpUNE(trunc(b, half), half));
  Value* minus = b.B.CreateICmpSLT(b.bits(x), b.integer(0));
  r = pick(b, b.B.CreateAnd(minus, odd), neg(b, r), r);
  Value* no_value = b.B.CreateAnd(b.B.CreateAnd(less(b, x, 0.0), b.B.CreateNot(integral)),
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

}  // namespace

Value* call(VectorBuilder& b, std::string_view name, llvm::ArrayRef<Value*> v) {
  B64 shaped{b, v[0]->getType()};
  for (const Row& row : kRows)
    if (name == row.name) return row.one ? row.one(shaped, v[0]) : row.two(shaped, v[0], v[1]);
  throw Unsupported(Reason::UnsupportedOp, "the function " + std::string(name) + " without a C library");
}

// Two factors: 2^n alone may be no normal number. The first product is exact.
Value* scale(VectorBuilder& builder, Value* p, Value* n) {
  B64 b{builder, p->getType()};
  Value *half = whole(b, n, 0.5).k, *k = whole(b, n, 1.0).k;
  auto power_of_two = [&](Value* e) { return power(b, b.B.CreateAdd(e, b.integer(kExponent))); };
  return mul(b, mul(b, p, power_of_two(half)), power_of_two(b.B.CreateSub(k, half)));
}

// 2^(y log2 |x|) in double, whose narrowing rounds once, also where the result is denormal or infinite.
Value* float_pow(VectorBuilder& builder, Value* x, Value* y) {
  B64 b{builder, VectorBuilder::like(x, builder.f64())};
  auto& B = builder.B;
  Value *size = builder.fabs(x), *zero = builder.num(x, 0.0), *one = builder.num(x, 1.0);
  Value *infinity = builder.num(x, INFINITY), *lowest = builder.num(x, -INFINITY);
  auto widened = [&](Value* v) { return B.CreateFPExt(v, b.type); };
  auto [m, e] = split_normal(b, widened(size));
  Value* s = quotient(b, sub(b, m, num(b, 1.0)), add(b, m, num(b, 1.0)));
  Value* p = b.horner(mul(b, s, s), {0.28253080237105688, 0.31993542373671913, 0.41220838533922988, 0.57707795335867418,
                                     0.96179669405722956, 0x1.71547652b82fep+1});
  Value* log = b.fma(p, s, e);
  // Of 0, infinity and NaN.
  Value* plain = B.CreateAnd(B.CreateFCmpOGT(size, zero), B.CreateFCmpOLT(size, infinity));
  log = pick(b, plain, log, widened(B.CreateSelect(B.CreateFCmpOEQ(size, zero), lowest, size)));
  Value* v = clamp(b, mul(b, widened(y), log), -200.0, 200.0);
  auto [k, n] = whole(b, v, 1.0);
  p = b.horner(sub(b, v, n),
               {2.0340739824001251e-05, 0.00015446315540241099, 0.0013310694780922874, 0.0096180959472997925,
                0.055504403800911456, 0.24022650731006029, 0.69314717101857981, 1.0});
  p = b.unbits(B.CreateAdd(b.bits(p), B.CreateShl(k, b.integer(52))));
  Value* r = B.CreateFPTrunc(pick(b, builder.is_nan(v), v, p), x->getType());
  // Of a negative base: whole powers, odd ones with its sign. A whole number from 2^24 on is even.
  auto is_fraction = [&](Value* a) { return B.CreateFCmpONE(B.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, a), a); };
  Value* fraction = is_fraction(y);
  Value* odd = B.CreateAnd(B.CreateNot(fraction), is_fraction(B.CreateFMul(y, builder.num(x, 0.5))));
  r = builder.copysign(r, B.CreateSelect(odd, x, one));
  Value* undefined = B.CreateAnd(B.CreateAnd(B.CreateFCmpOLT(x, zero), B.CreateFCmpOGT(x, lowest)), fraction);
  r = B.CreateSelect(undefined, builder.num(x, NAN), r);
  // 1 whatever the other, NaN included; -1 to the power of an infinity.
  Value* unity = B.CreateOr(B.CreateFCmpOEQ(x, one), B.CreateFCmpOEQ(y, zero));
  unity = B.CreateOr(unity, B.CreateAnd(B.CreateFCmpOEQ(size, one), B.CreateFCmpOEQ(builder.fabs(y), infinity)));
  return B.CreateSelect(unity, one, r);
}

}  // namespace braze::codegen::ir::math64
