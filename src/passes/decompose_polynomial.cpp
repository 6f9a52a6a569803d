// Orthogonal polynomials of a degree that is a number: their recurrences, as far as eager, too, takes these.
#include "passes/builder.h"

namespace braze::passes {
namespace {

enum class Kind : uint8_t { Chebyshev, HermiteH, HermiteHe, Laguerre, Legendre };
struct Polynomial {
  std::string_view name;  // after "aten::special_"
  Kind kind;
  int64_t most;            // degree
  double slope, constant;  // of degree 1 in y, which is x or, shifted, 2 x - 1
  bool shifted;
};
constexpr Polynomial kPolynomials[] = {
    {"chebyshev_polynomial_t", Kind::Chebyshev, 6, 1, 0, false},
    {"chebyshev_polynomial_u", Kind::Chebyshev, 8, 2, 0, false},
    {"chebyshev_polynomial_v", Kind::Chebyshev, 8, 2, -1, false},
    {"chebyshev_polynomial_w", Kind::Chebyshev, 8, 2, 1, false},
    {"shifted_chebyshev_polynomial_t", Kind::Chebyshev, 6, 1, 0, true},
    {"shifted_chebyshev_polynomial_u", Kind::Chebyshev, 6, 2, 0, true},
    {"shifted_chebyshev_polynomial_v", Kind::Chebyshev, 6, 2, -1, true},
    {"shifted_chebyshev_polynomial_w", Kind::Chebyshev, 6, 2, 1, true},
    {"hermite_polynomial_h", Kind::HermiteH, 16, 2, 0, false},
    {"hermite_polynomial_he", Kind::HermiteHe, 16, 1, 0, false},
    {"laguerre_polynomial_l", Kind::Laguerre, 16, -1, 1, false},
    {"legendre_polynomial_p", Kind::Legendre, 16, 1, 0, false},
};

const Polynomial& polynomial_of(std::string_view aten) {
  aten.remove_prefix(sizeof("aten::special_") - 1);
  for (const Polynomial& p : kPolynomials)
    if (aten.substr(0, aten.find('.')) == p.name) return p;
  throw NoRule{};
}

// (x, n)
void polynomial(Builder& b) {
  const Polynomial& f = polynomial_of(b.node.extern_name);
  const DType t = b.result(0).dtype;
  const double degree = b.number(1);
  if ((t != DType::F32 && t != DType::F64) || degree < 0 || degree > static_cast<double>(f.most)) throw NoRule{};
  const auto n = static_cast<int64_t>(degree);
  ValueId y = b.cast(b.tensor(0), t);
  if (n == 0) return b.set(0, b.full(b.result(0).sizes, 1.0, t, b.result(0).device));
  ValueId twice = b.add(y, y);
  if (f.shifted) y = b.sub(twice, 1.0), twice = b.add(y, y);
  ValueId last = f.slope == 1 ? y : f.slope == 2 ? twice : b.unary(Op::neg, y);
  if (f.constant != 0) last = b.add(last, f.constant);
  ValueId before = b.full({}, 1.0, t, b.result(0).device);
  for (int64_t j = 1; j < n; ++j) {
    const auto k = static_cast<double>(j);
    ValueId next;
    switch (f.kind) {
      case Kind::Chebyshev: next = b.sub(b.mul(twice, last), before); break;
      case Kind::HermiteH: next = b.sub(b.mul(twice, last), b.mul(before, 2 * k)); break;
      case Kind::HermiteHe: next = b.sub(b.mul(y, last), b.mul(before, k)); break;
      case Kind::Laguerre: {
        ValueId factor = b.add(b.call(Op::rsub_Scalar, {y, 1.0, b.k(1)}), 2 * k);
        next = b.div(b.sub(b.mul(factor, last), b.mul(before, k)), k + 1);
        break;
      }
      case Kind::Legendre: next = b.div(b.sub(b.mul(b.mul(y, 2 * k + 1), last), b.mul(before, k)), k + 1); break;
    }
    before = last;
    last = next;
  }
  b.set(0, last);
}

}  // namespace

std::span<const NamedRule> polynomial_rules() {
  static constexpr NamedRule kRules[] = {
      {"aten::special_chebyshev_polynomial_t.n_scalar", polynomial},
      {"aten::special_chebyshev_polynomial_u.n_scalar", polynomial},
      {"aten::special_chebyshev_polynomial_v.n_scalar", polynomial},
      {"aten::special_chebyshev_polynomial_w.n_scalar", polynomial},
      {"aten::special_shifted_chebyshev_polynomial_t.n_scalar", polynomial},
      {"aten::special_shifted_chebyshev_polynomial_u.n_scalar", polynomial},
      {"aten::special_shifted_chebyshev_polynomial_v.n_scalar", polynomial},
      {"aten::special_shifted_chebyshev_polynomial_w.n_scalar", polynomial},
      {"aten::special_hermite_polynomial_h.n_scalar", polynomial},
      {"aten::special_hermite_polynomial_he.n_scalar", polynomial},
      {"aten::special_laguerre_polynomial_l.n_scalar", polynomial},
      {"aten::special_legendre_polynomial_p.n_scalar", polynomial},
  };
  return kRules;
}

}  // namespace braze::passes
