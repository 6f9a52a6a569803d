// Values of matrices. Their vectors are defined up to sign or phase alone: results without elements, which nothing may
// read.
#include <algorithm>
#include <cmath>
#include <complex>

#include "base/check.h"
#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

using Matrix = std::vector<Numbers>;
using Complex = std::complex<double>;

Matrix product(const Matrix& a, const Matrix& b) {
  Matrix out(a.size(), Numbers(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < b[0].size(); ++j)
      for (size_t k = 0; k < b.size(); ++k) out[i][j] += a[i][k] * b[k][j];
  return out;
}

Matrix transposed(const Matrix& a) {
  Matrix out(a[0].size(), Numbers(a.size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[0].size(); ++j) out[j][i] = a[i][j];
  return out;
}

Matrix matrix(const HostTensor& t) {
  BRAZE_CHECK(t.sizes.size() == 2 && count(t.sizes) > 0, "one matrix");
  Matrix out;
  for (int64_t i = 0; i < t.sizes[0]; ++i)
    out.emplace_back(t.data.begin() + i * t.sizes[1], t.data.begin() + (i + 1) * t.sizes[1]);
  return out;
}

// Of a symmetric matrix, rising: rotations (Jacobi's) until what is beside the diagonal is gone.
Numbers symmetric_eigenvalues(Matrix a) {
  size_t n = a.size();
  for (int sweep = 0; sweep < 60; ++sweep)
    for (size_t p = 0; p < n; ++p)
      for (size_t q = p + 1; q < n; ++q) {
        if (a[p][q] == 0) continue;
        double angle = 0.5 * std::atan2(2 * a[p][q], a[q][q] - a[p][p]), c = std::cos(angle), s = std::sin(angle);
        for (size_t k = 0; k < n; ++k) {
          double kp = a[k][p], kq = a[k][q];
          a[k][p] = c * kp - s * kq;
          a[k][q] = s * kp + c * kq;
        }
        for (size_t k = 0; k < n; ++k) {
          double pk = a[p][k], qk = a[q][k];
          a[p][k] = c * pk - s * qk;
          a[q][k] = s * pk + c * qk;
        }
      }
  Numbers out;
  for (size_t i = 0; i < n; ++i) out.push_back(a[i][i]);
  std::sort(out.begin(), out.end());
  return out;
}

// Roots of the characteristic polynomial (Faddeev and LeVerrier), all at once (Durand and Kerner).
std::vector<Complex> eigenvalues(const Matrix& a) {
  size_t n = a.size();
  Matrix m(n, Numbers(n));
  Numbers coefficients(n + 1);
  coefficients[n] = 1;
  for (size_t k = 1; k <= n; ++k) {
    for (size_t i = 0; i < n; ++i) m[i][i] += coefficients[n - k + 1];
    m = product(a, m);
    double trace = 0;
    for (size_t i = 0; i < n; ++i) trace += m[i][i];
    coefficients[n - k] = -trace / static_cast<double>(k);
  }
  auto polynomial = [&](Complex x) {
    Complex y = 0;
    for (size_t k = n + 1; k-- > 0;) y = y * x + coefficients[k];
    return y;
  };
  std::vector<Complex> roots;
  for (size_t i = 0; i < n; ++i) roots.push_back(std::pow(Complex(0.4, 0.9), static_cast<double>(i)));
  for (int step = 0; step < 500; ++step)
    for (size_t i = 0; i < n; ++i) {
      Complex others = 1;
      for (size_t k = 0; k < n; ++k)
        if (k != i) others *= roots[i] - roots[k];
      roots[i] -= polynomial(roots[i]) / others;
    }
  return roots;
}

// Results U, S, V: the roots of the eigenvalues of A'A, falling.
void svd(HostCall& c) {
  Matrix a = matrix(c.tensor(0));
  bool wide = a.size() < a[0].size();
  Numbers values = symmetric_eigenvalues(wide ? product(a, transposed(a)) : product(transposed(a), a));
  std::reverse(values.begin(), values.end());
  for (double& v : values) v = std::sqrt(std::max(v, 0.0));
  c.give(1, std::move(values));
  c.leave_undefined(0);
  c.leave_undefined(2);
}

// (self, triangle): the other half is taken for its mirror image.
void eigh(HostCall& c) {
  Matrix a = matrix(c.tensor(0));
  bool lower = c.text(1) == "L";
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < i; ++j) (lower ? a[j][i] : a[i][j]) = lower ? a[i][j] : a[j][i];
  c.give(0, symmetric_eigenvalues(std::move(a)));
  c.leave_undefined(1);
}

void eig(HostCall& c) {
  Numbers out;
  for (Complex v : eigenvalues(matrix(c.tensor(0)))) out.insert(out.end(), {v.real(), v.imag()});
  c.give(0, std::move(out));
  c.leave_undefined(1);
}

// (self, other, dim)
void cross(HostCall& c) {
  const HostTensor &a = c.tensor(0), &b = c.tensor(1);
  size_t d = c.dim(2, c.sizes().size());
  c.each([&](const Dims& i) {
    Dims next = i, last = i;
    next[d] = (i[d] + 1) % 3;
    last[d] = (i[d] + 2) % 3;
    return at(a, next) * at(b, last) - at(a, last) * at(b, next);
  });
}

}  // namespace

Rule linalg_rule(std::string_view name) {
  if (name == "aten::_linalg_svd") return svd;
  if (name == "aten::_linalg_eigh") return eigh;
  if (name == "aten::linalg_eig" || name == "aten::_linalg_eigvals") return eig;
  if (name == "aten::linalg_cross") return cross;
  return nullptr;
}

}  // namespace braze::graph::host
