// Products and distances of vectors, and grids of places.
#include <algorithm>
#include <cmath>

#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

void dot(HostCall& c) {
  double s = 0;
  for (size_t k = 0; k < c.tensor(0).data.size(); ++k) s += c.tensor(0).data[k] * c.tensor(1).data.at(k);
  c.give({s});
}

// x[..., p, :] - y[..., r, :] for an index that ends in p, r.
Numbers differences(const HostTensor& x, const HostTensor& y, const Dims& index) {
  Numbers out;
  Dims left(index.begin(), index.end() - 1), right(index.begin(), index.end() - 2);
  right.push_back(index.back());
  left.push_back(0), right.push_back(0);
  for (; left.back() < x.sizes.back(); ++left.back(), ++right.back()) out.push_back(at(x, left) - at(y, right));
  return out;
}

// (x1, x2, p, how)
void distances(HostCall& c) {
  c.each([&](const Dims& i) { return vector_norm(differences(c.tensor(0), c.tensor(1), i), c.number(2)); });
}

// (grad, x1, x2, p, distances): of a distance by an element it is sign(d) * |d / distance|^(p - 1), 0 at distance 0.
void distances_backward(HostCall& c) {
  const HostTensor &grad = c.tensor(0), &x = c.tensor(1), &y = c.tensor(2), &distance = c.tensor(4);
  double p = c.number(3);
  Numbers out(x.data.size());
  for_each_index(grad.sizes, [&](const Dims& i) {
    Dims to(i.begin(), i.end() - 1);
    to.push_back(0);
    for (double d : differences(x, y, i)) {
      double far = at(distance, i), slope = p == 1 ? 1 : far == 0 ? 0 : std::pow(std::fabs(d) / far, p - 1);
      out[flat_index(x.sizes, to)] += at(grad, i) * ((d > 0) - (d < 0)) * slope;
      ++to.back();
    }
  });
  c.give(std::move(out));
}

// (theta, [N, C, (D,) H, W], whether the outer places are the corners): theta * (x, y, (z,) 1) for each place.
void affine_grid(HostCall& c) {
  Dims sizes = c.integers(1);
  size_t n = sizes.size() - 2;
  c.each([&](const Dims& i) {
    double s = at(c.tensor(0), {i[0], i.back(), static_cast<int64_t>(n)});
    for (size_t k = 0; k < n; ++k) {
      int64_t size = sizes[n + 1 - k], place = i[n - k];
      auto width = static_cast<double>(size);
      double v = size == 1   ? 0
                 : c.flag(2) ? 2 * static_cast<double>(place) / (width - 1) - 1
                             : (2 * static_cast<double>(place) + 1) / width - 1;
      s += v * at(c.tensor(0), {i[0], i.back(), static_cast<int64_t>(k)});
    }
    return s;
  });
}

void add_relu(HostCall& c) {
  c.binary([&](double a, double b) { return std::max(a + c.number(2, 1) * b, 0.0); });
}

}  // namespace

Rule distance_rule(Op op) {
  switch (op) {
    case Op::dot:
    case Op::vdot: return dot;
    case Op::_cdist_forward: return distances;
    default: return nullptr;
  }
}

Rule distance_rule(std::string_view name) {
  if (name == "aten::_cdist_backward") return distances_backward;
  if (name == "aten::affine_grid_generator") return affine_grid;
  if (name == "aten::_add_relu.Tensor") return add_relu;
  return nullptr;
}

}  // namespace braze::graph::host
