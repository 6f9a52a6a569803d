#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

// Hands the reduced elements of each element of result k to f(elements, k).
template <class F>
void reduce(HostCall& c, size_t dims_at, F&& f) {
  const HostTensor& x = c.tensor(0);
  std::vector<bool> gone = c.dims(dims_at, x.sizes.size());
  Dims kept;
  for (size_t d = 0; d < gone.size(); ++d)
    if (!gone[d]) kept.push_back(x.sizes[d]);
  std::vector<Numbers> groups(static_cast<size_t>(count(kept)));
  for_each_index(x.sizes, [&](const Dims& index) {
    Dims where;
    for (size_t d = 0; d < gone.size(); ++d)
      if (!gone[d]) where.push_back(index[d]);
    groups[flat_index(kept, where)].push_back(at(x, index));
  });
  for (size_t k = 0; k < c.node.outputs.size(); ++k) {
    Numbers out;
    for (const Numbers& group : groups) out.push_back(f(group, k));
    c.give(k, std::move(out));
  }
}

// (self, dim, dtype)
void running_sum(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  const size_t d = x.sizes.empty() ? 0 : c.dim(1, x.sizes.size());
  Numbers out;
  for_each_index(x.sizes, [&](const Dims& index) {
    const bool first = x.sizes.empty() || index[d] == 0;
    Dims before = index;
    if (!first) --before[d];
    out.push_back(at(x, index) + (first ? 0 : out[flat_index(x.sizes, before)]));
  });
  c.give(std::move(out));
}

constexpr size_t kAll = 99;  // no argument names dimensions

void norm_along(HostCall& c, size_t dims_at) {
  double p = c.number(1, 2);
  reduce(c, dims_at, [&](const Numbers& v, size_t) { return vector_norm(v, p); });
}

// (self, p, dim, keepdim)
void powsum(HostCall& c) {
  double p = c.number(1, 2);
  reduce(c, 2, [&](const Numbers& v, size_t) {
    double s = 0;
    for (double x : v) s += std::pow(std::fabs(x), p);
    return s;
  });
}

// (self, other, p)
void dist(HostCall& c) {
  const HostTensor &a = c.tensor(0), &b = c.tensor(1);
  Numbers differences;
  for_each_index(broadcast({&a, &b}), [&](const Dims& i) { differences.push_back(at(a, i) - at(b, i)); });
  c.give({vector_norm(differences, c.number(2))});
}

double log_sum_exp(const Numbers& v, size_t) {
  double top = extreme(v, true), total = 0;
  if (std::isinf(top)) return top;
  for (double x : v) total += std::exp(x - top);
  return top + std::log(total);
}

double not_zero(const Numbers& v, size_t) {
  double n = 0;
  for (double x : v) n += x != 0;
  return n;
}

void variances(HostCall& c) {
  double correction = c.number(2, 1);
  reduce(c, 1, [&](const Numbers& v, size_t k) { return k ? mean(v) : variance(v, correction); });
}

// (self, dims, keepdim): no dimensions are all of them, or none where the result is as large as the operand.
void truth_along(HostCall& c) {
  const HostTensor& x = c.tensor(0);
  if (c.integers(1).empty() && c.sizes() == x.sizes) return c.each([&](const Dims& i) { return at(x, i) != 0; });
  const bool all = c.op() == Op::all_dims;
  reduce(c, 1, [&](const Numbers& v, size_t) { return not_zero(v, 0) >= (all ? static_cast<double>(v.size()) : 1); });
}

}  // namespace

double vector_norm(const Numbers& v, double p) {
  double s = 0, most = 0, least = std::numeric_limits<double>::infinity();
  for (double x : v) {
    s += p == 0 ? x != 0 : std::pow(std::fabs(x), p);
    most = std::max(most, std::fabs(x));
    least = std::min(least, std::fabs(x));
  }
  return p == 0 ? s : std::isinf(p) ? (p > 0 ? most : least) : std::pow(s, 1 / p);
}

Rule reduce_rule(Op op) {
  // clang-format off: a table
  switch (op) {
    case Op::sum: return [](HostCall& c) { reduce(c, kAll, [](const Numbers& v, size_t) { return sum(v); }); };
    case Op::sum_dim_IntList: return [](HostCall& c) { reduce(c, 1, [](const Numbers& v, size_t) { return sum(v); }); };
    case Op::mean: return [](HostCall& c) { reduce(c, kAll, [](const Numbers& v, size_t) { return mean(v); }); };
    case Op::mean_dim: return [](HostCall& c) { reduce(c, 1, [](const Numbers& v, size_t) { return mean(v); }); };
    case Op::amax: return [](HostCall& c) { reduce(c, 1, [](const Numbers& v, size_t) { return extreme(v, true); }); };
    case Op::amin: return [](HostCall& c) { reduce(c, 1, [](const Numbers& v, size_t) { return extreme(v, false); }); };
    case Op::all_dim: return [](HostCall& c) { reduce(c, 1, [](const Numbers& v, size_t) { return not_zero(v, 0) == static_cast<double>(v.size()); }); };
    case Op::any_dim: return [](HostCall& c) { reduce(c, 1, [](const Numbers& v, size_t) { return not_zero(v, 0) > 0; }); };
    case Op::any_dims: case Op::all_dims: return truth_along;
    case Op::max: return [](HostCall& c) { reduce(c, kAll, [](const Numbers& v, size_t) { return extreme(v, true); }); };
    case Op::linalg_vector_norm: return [](HostCall& c) { norm_along(c, 2); };
    case Op::var_correction: case Op::var_mean_correction: return variances;
    case Op::logsumexp: return [](HostCall& c) { reduce(c, 1, log_sum_exp); };
    case Op::cumsum: return running_sum;
    case Op::count_nonzero: return [](HostCall& c) { reduce(c, 1, not_zero); };
    default: return nullptr;
  }
  // clang-format on
}

Rule reduce_rule(std::string_view name) {
  if (name == "aten::norm.ScalarOpt_dtype") return [](HostCall& c) { norm_along(c, kAll); };
  if (name == "aten::norm.ScalarOpt_dim_dtype") return [](HostCall& c) { norm_along(c, 2); };
  if (name == "aten::linalg__powsum") return powsum;
  if (name == "aten::dist") return dist;
  return nullptr;
}

}  // namespace braze::graph::host
