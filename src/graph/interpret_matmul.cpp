#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "graph/interpret_rules.h"

namespace braze::graph::host {
namespace {

// alpha * (a @ b) + beta * add, of two or three dimensions.
void product(HostCall& c, const HostTensor& a, const HostTensor& b, const HostTensor* add, double beta, double alpha) {
  Dims sizes = c.sizes();
  size_t row = sizes.size() - 2, column = sizes.size() - 1;
  int64_t inner = a.sizes.back();
  Dims left, right;
  c.each([&](const Dims& index) {
    double s = 0;
    left = right = index;
    for (int64_t k = 0; k < inner; ++k) {
      left[column] = right[row] = k;
      s += at(a, left) * at(b, right);
    }
    return alpha * s + (add && beta != 0 ? beta * at(*add, index) : 0);
  });
}

void mm(HostCall& c) { product(c, c.tensor(0), c.tensor(1), nullptr, 0, 1); }
void addmm(HostCall& c) { product(c, c.tensor(1), c.tensor(2), &c.tensor(0), c.number(3, 1), c.number(4, 1)); }

// alpha * (a @ x) + beta * add, of a matrix and a vector.
void product_with_vector(HostCall& c, const HostTensor& a, const HostTensor& x, const HostTensor* add, double beta,
                         double alpha) {
  c.each([&](const Dims& index) {
    double s = 0;
    for (int64_t k = 0; k < a.sizes[1]; ++k) s += at(a, {index[0], k}) * at(x, {k});
    return alpha * s + (add && beta != 0 ? beta * at(*add, index) : 0);
  });
}

void mv(HostCall& c) { product_with_vector(c, c.tensor(0), c.tensor(1), nullptr, 0, 1); }
void addmv(HostCall& c) {
  product_with_vector(c, c.tensor(1), c.tensor(2), &c.tensor(0), c.number(3, 1), c.number(4, 1));
}

// One row of softmax(scale * q @ k^T + mask): of the query at [batch, head, row], its weights before they are divided.
struct RowOfWeights {
  Numbers weights;
  double most = -std::numeric_limits<double>::infinity(), total = 0;
};
RowOfWeights row_of_weights(HostCall& c, const HostTensor* mask, size_t causal, size_t scale_at, const Dims& at_row) {
  const HostTensor &q = c.tensor(0), &k = c.tensor(1);
  const double scale = c.number(scale_at, 1 / std::sqrt(static_cast<double>(q.sizes[3])));
  auto in = [&](int64_t place, int64_t feature) { return Dims{at_row[0], at_row[1], place, feature}; };
  RowOfWeights row;
  for (int64_t key = 0; key < k.sizes[2]; ++key) {
    double score = 0;
    for (int64_t f = 0; f < q.sizes[3]; ++f) score += at(q, in(at_row[2], f)) * at(k, in(key, f));
    score *= scale;
    if (mask) score += at(*mask, in(at_row[2], key));
    if (c.flag(causal) && key > at_row[2]) score = -std::numeric_limits<double>::infinity();
    row.weights.push_back(score);
    row.most = std::isnan(score) ? score : std::max(row.most, score);
  }
  for (double& w : row.weights) row.total += w = std::isinf(row.most) ? 0 : std::exp(w - row.most);
  return row;
}

// softmax(scale * q @ k^T + mask) @ v: query, key and value [batch, heads, rows, features]. Of statistics for a
// backward those that are one number a row, the logarithm of the sum; others are the kernels' own.
void attention(HostCall& c, const HostTensor* mask, size_t causal, size_t scale_at, bool has_sums = false) {
  const HostTensor &q = c.tensor(0), &v = c.tensor(2);
  Numbers sums;
  std::map<Dims, RowOfWeights> rows;
  for_each_index({q.sizes[0], q.sizes[1], q.sizes[2]}, [&](const Dims& at_row) {
    RowOfWeights row = row_of_weights(c, mask, causal, scale_at, at_row);
    sums.push_back(row.total == 0 ? 0 : row.most + std::log(row.total));
    rows.emplace(at_row, std::move(row));
  });
  c.each([&](const Dims& index) {
    const RowOfWeights& row = rows.at({index[0], index[1], index[2]});
    double result = 0;
    for (size_t key = 0; key < row.weights.size(); ++key)
      result += row.weights[key] * at(v, {index[0], index[1], static_cast<int64_t>(key), index[3]});
    return row.total == 0 ? 0 : result / row.total;
  });
  for (size_t i = 1; i < c.node.outputs.size(); ++i) {
    if (!c.wants(i)) continue;
    if (has_sums && i == 1)
      c.give(1, sums);
    else
      c.leave_undefined(i);
  }
}
void flash_attention(HostCall& c) { attention(c, nullptr, 4, 6); }
void cpu_attention(HostCall& c) { attention(c, c.has(5) ? &c.tensor(5) : nullptr, 4, 6, true); }

// (grad, query, key, value, ..), and where the others are: of query, key and value. Results besides are undefined.
void attention_backward(HostCall& c, size_t mask_at, size_t causal, size_t scale_at) {
  const HostTensor &grad = c.tensor(0), &q = c.tensor(1), &k = c.tensor(2), &v = c.tensor(3);
  const HostTensor* mask = c.has(mask_at) ? &c.tensor(mask_at) : nullptr;
  const double scale = c.number(scale_at, 1 / std::sqrt(static_cast<double>(q.sizes[3])));
  Numbers dq(q.data.size()), dk(k.data.size()), dv(v.data.size());
  for_each_index({q.sizes[0], q.sizes[1], q.sizes[2]}, [&](const Dims& row) {
    auto in = [&](int64_t place, int64_t feature) { return Dims{row[0], row[1], place, feature}; };
    Numbers weights, slopes;
    double most = -std::numeric_limits<double>::infinity(), total = 0, mean = 0;
    for (int64_t key = 0; key < k.sizes[2]; ++key) {
      double score = mask ? at(*mask, in(row[2], key)) : 0, slope = 0;
      for (int64_t f = 0; f < q.sizes[3]; ++f) score += scale * at(q, in(row[2], f)) * at(k, in(key, f));
      for (int64_t f = 0; f < v.sizes[3]; ++f) slope += at(grad, in(row[2], f)) * at(v, in(key, f));
      if (c.flag(causal) && key > row[2]) score = -std::numeric_limits<double>::infinity();
      weights.push_back(score), slopes.push_back(slope);
      most = std::max(most, score);
    }
    for (double& w : weights) total += w = std::exp(w - most);
    for (size_t i = 0; i < weights.size(); ++i) mean += (weights[i] /= total) * slopes[i];
    for (int64_t key = 0; key < k.sizes[2]; ++key) {
      const double weight = weights[static_cast<size_t>(key)];
      const double slope = scale * weight * (slopes[static_cast<size_t>(key)] - mean);
      for (int64_t f = 0; f < q.sizes[3]; ++f) {
        dq[flat_index(q.sizes, in(row[2], f))] += slope * at(k, in(key, f));
        dk[flat_index(k.sizes, in(key, f))] += slope * at(q, in(row[2], f));
      }
      for (int64_t f = 0; f < v.sizes[3]; ++f) dv[flat_index(v.sizes, in(key, f))] += weight * at(grad, in(row[2], f));
    }
  });
  c.give(0, std::move(dq));
  c.give(1, std::move(dk));
  c.give(2, std::move(dv));
  if (c.wants(3)) c.leave_undefined(3);
}
void cpu_attention_backward(HostCall& c) { attention_backward(c, 8, 7, 9); }
void efficient_attention_backward(HostCall& c) { attention_backward(c, 4, 11, 12); }
void cudnn_attention_backward(HostCall& c) { attention_backward(c, 8, 14, 15); }
void any_attention(HostCall& c) { attention(c, c.has(3) ? &c.tensor(3) : nullptr, 5, 6); }
void efficient_attention(HostCall& c) { attention(c, c.has(3) ? &c.tensor(3) : nullptr, 6, 7); }
void cudnn_attention(HostCall& c) { attention(c, c.has(3) ? &c.tensor(3) : nullptr, 6, 8); }

}  // namespace

Rule matmul_rule(Op op) {
  switch (op) {
    case Op::scaled_dot_product_attention: return any_attention;
    case Op::_scaled_dot_product_flash_attention: return flash_attention;
    case Op::_scaled_dot_product_efficient_attention: return efficient_attention;
    case Op::_scaled_dot_product_cudnn_attention: return cudnn_attention;
    case Op::_scaled_dot_product_flash_attention_for_cpu: return cpu_attention;
    case Op::_scaled_dot_product_flash_attention_for_cpu_backward: return cpu_attention_backward;
    case Op::_scaled_dot_product_efficient_attention_backward: return efficient_attention_backward;
    case Op::_scaled_dot_product_cudnn_attention_backward: return cudnn_attention_backward;
    case Op::mv: return mv;
    case Op::addmv: return addmv;
    case Op::mm:
    case Op::bmm: return mm;
    case Op::addmm:
    case Op::baddbmm: return addmm;
    default: return nullptr;
  }
}

}  // namespace braze::graph::host
