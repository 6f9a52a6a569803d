#include "codegen/llvm/pieces.h"

#include <array>
#include <cmath>
#include <functional>
#include <numbers>

namespace braze::codegen::ir {
namespace {

constexpr int kPieces = 32;

// Piece k serves |x| within step/2 of k * step.
struct Pieces {
  double step, limit;                              // beyond the limit the function is 1
  bool linear;                                     // r itself is no part of what the coefficients say
  std::vector<std::array<float, kPieces>> powers;  // coefficient of r^j, r = |x| - k * step
};

// The polynomial in (x - centre) through f at the Chebyshev points of [lo, hi], lowest power first.
std::vector<double> interpolate(const std::function<double(double)>& f, double lo, double hi, double centre,
                                int degree) {
  int n = degree + 1;
  std::vector<double> x(n), d(n);
  for (int i = 0; i < n; ++i) {
    double at = (lo + hi) / 2 + (hi - lo) / 2 * std::cos(std::numbers::pi * (i + 0.5) / n);
    x[i] = at - centre;
    d[i] = f(at);
  }
  for (int j = 1; j < n; ++j)  // divided differences
    for (int i = n - 1; i >= j; --i) d[i] = (d[i] - d[i - 1]) / (x[i] - x[i - j]);
  std::vector<double> p{d[n - 1]};
  for (int i = n - 2; i >= 0; --i) {  // p * (r - x[i]) + d[i]
    p.insert(p.begin(), d[i]);
    for (size_t k = 0; k + 1 < p.size(); ++k) p[k] -= x[i] * p[k + 1];
  }
  return p;
}

Pieces make_pieces(double (*f)(double), double step, double limit, int degree, bool linear) {
  Pieces out{step, limit, linear, std::vector<std::array<float, kPieces>>(degree + 1)};
  for (int k = 0; k < kPieces; ++k) {
    std::vector<double> p;
    if (k == 0) {  // no constant term, so that the relative error stays small at 0
      p = interpolate([&](double t) { return f(t) / t; }, 0, step / 2, 0, degree - 1);
      p.insert(p.begin(), 0.0);
    } else {
      p = interpolate(f, (k - 0.5) * step, (k + 0.5) * step, k * step, degree);
    }
    if (linear) p[1] -= 1;
    for (int j = 0; j <= degree; ++j) out.powers[j][k] = static_cast<float>(p[j]);
  }
  return out;
}

Value* evaluate(VectorBuilder& b, const Pieces& pieces, Value* x) {
  Value* t = b.fabs(x);
  // Adding 2^23 rounds to an integer, which then stands in the low bits.
  Value* magic = b.num(x, 8388608.0);
  Value* y = b.fma(t, b.num(x, 1 / pieces.step), magic);
  Value* r = b.fma(b.B.CreateFSub(y, magic), b.num(x, -pieces.step), t);
  Value* index = b.bits(y);
  auto pick = [&](const std::array<float, kPieces>& table) { return b.pick(table, index); };
  Value* p = pick(pieces.powers.back());
  for (size_t j = pieces.powers.size() - 1; j-- > 0;) {
    Value* next = pick(pieces.powers[j]);
    // A slope near 1 would round both as a coefficient and times r.
    p = b.fma(p, r, j == 0 && pieces.linear ? b.B.CreateFAdd(next, r) : next);
  }
  return b.copysign(b.B.CreateSelect(b.B.CreateFCmpOGT(t, b.num(x, pieces.limit)), b.num(x, 1.0), p), x);
}

}  // namespace

bool has_pieces(const VectorBuilder& b, Value* x) { return b.native_table(x) == kPieces; }

Value* tanh_pieces(VectorBuilder& b, Value* x) {
  static const Pieces pieces = make_pieces(std::tanh, 19.0 / 64, 9.3, 6, false);
  return evaluate(b, pieces, x);
}

Value* erf_pieces(VectorBuilder& b, Value* x) {
  static const Pieces pieces = make_pieces(std::erf, 1.0 / 8, 3.93, 5, true);
  return evaluate(b, pieces, x);
}

}  // namespace braze::codegen::ir
