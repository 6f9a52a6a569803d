// Orthogonal polynomials, by their sums of powers.
#include <cmath>

#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

double choose(int n, int k) {
  return k < 0 || k > n ? 0 : std::round(std::tgamma(n + 1) / (std::tgamma(k + 1) * std::tgamma(n - k + 1)));
}
double factorial(int n) { return std::tgamma(n + 1); }
double sign(int k) { return k % 2 ? -1 : 1; }

double chebyshev_t(double x, int n) {
  double s = 0;
  for (int k = 0; 2 * k <= n; ++k) s += choose(n, 2 * k) * std::pow(x * x - 1, k) * std::pow(x, n - 2 * k);
  return s;
}
double chebyshev_u(double x, int n) {
  double s = 0;
  for (int k = 0; 2 * k <= n; ++k) s += choose(n + 1, 2 * k + 1) * std::pow(x * x - 1, k) * std::pow(x, n - 2 * k);
  return s;
}
double chebyshev_v(double x, int n) { return chebyshev_u(x, n) - chebyshev_u(x, n - 1); }
double chebyshev_w(double x, int n) { return chebyshev_u(x, n) + chebyshev_u(x, n - 1); }

double hermite_h(double x, int n) {
  double s = 0;
  for (int k = 0; 2 * k <= n; ++k)
    s += sign(k) * factorial(n) / (factorial(k) * factorial(n - 2 * k)) * std::pow(2 * x, n - 2 * k);
  return s;
}
double hermite_he(double x, int n) {
  double s = 0;
  for (int k = 0; 2 * k <= n; ++k)
    s += sign(k) * factorial(n) / (factorial(k) * factorial(n - 2 * k)) * std::pow(x, n - 2 * k) / std::pow(2, k);
  return s;
}
double laguerre(double x, int n) {
  double s = 0;
  for (int k = 0; k <= n; ++k) s += sign(k) * choose(n, k) * std::pow(x, k) / factorial(k);
  return s;
}
double legendre(double x, int n) {
  double s = 0;
  for (int k = 0; k <= n; ++k) s += std::pow(choose(n, k), 2) * std::pow(x - 1, n - k) * std::pow(x + 1, k);
  return s / std::pow(2, n);
}

// (x, n); 0 below degree 0
template <double (*f)(double, int), bool shifted = false>
void polynomial(HostCall& c) {
  c.binary([](double x, double n) { return n < 0 ? 0 : f(shifted ? 2 * x - 1 : x, static_cast<int>(n)); });
}

}  // namespace

Rule polynomial_rule(std::string_view name) {
  constexpr std::string_view kPrefix = "aten::special_";
  if (!name.starts_with(kPrefix)) return nullptr;
  name.remove_prefix(kPrefix.size());
  name = name.substr(0, name.find('.'));  // the degree may be a number or a tensor
  if (name == "chebyshev_polynomial_t") return polynomial<chebyshev_t>;
  if (name == "chebyshev_polynomial_u") return polynomial<chebyshev_u>;
  if (name == "chebyshev_polynomial_v") return polynomial<chebyshev_v>;
  if (name == "chebyshev_polynomial_w") return polynomial<chebyshev_w>;
  if (name == "shifted_chebyshev_polynomial_t") return polynomial<chebyshev_t, true>;
  if (name == "shifted_chebyshev_polynomial_u") return polynomial<chebyshev_u, true>;
  if (name == "shifted_chebyshev_polynomial_v") return polynomial<chebyshev_v, true>;
  if (name == "shifted_chebyshev_polynomial_w") return polynomial<chebyshev_w, true>;
  if (name == "hermite_polynomial_h") return polynomial<hermite_h>;
  if (name == "hermite_polynomial_he") return polynomial<hermite_he>;
  if (name == "laguerre_polynomial_l") return polynomial<laguerre>;
  if (name == "legendre_polynomial_p") return polynomial<legendre>;
  return nullptr;
}

}  // namespace braze::graph::host
