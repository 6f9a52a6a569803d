// Operators without rows that are a few primitive ones: norms and what is scaled by them, products, sums of special
// functions.
#include <cmath>
#include <numbers>

#include "passes/builder.h"

namespace braze::passes {
namespace {

std::vector<int64_t> all_but(size_t rank, size_t d) {
  std::vector<int64_t> dims;
  for (size_t k = 0; k < rank; ++k)
    if (k != d) dims.push_back(static_cast<int64_t>(k));
  return dims;
}

void only_floats(Builder& b, ValueId v) {
  if (!is_floating(b.type(v).dtype)) throw NoRule{};
}

void norm_of_dtype(Builder& b) {  // (self, p, dtype)
  b.set(0, b.vector_norm(b.tensor(0), b.args.at(1), NoneArg{}, false, b.args.at(2)));
}
void norm_of_dims_and_dtype(Builder& b) {  // (self, p, dim, keepdim, dtype)
  b.set(0, b.vector_norm(b.tensor(0), b.args.at(1), b.args.at(2), b.flag(3), b.args.at(4)));
}

void powsum(Builder& b) {  // (self, p, dim, keepdim, dtype)
  if (!std::holds_alternative<NoneArg>(b.args.at(4))) throw NoRule{};
  b.set(0, b.power_sum(b.tensor(0), b.number(1), b.args.at(2), b.flag(3)));
}

void dist(Builder& b) {  // (self, other, p)
  b.set(0, b.vector_norm(b.sub(b.tensor(0), b.tensor(1)), b.args.at(2), NoneArg{}, false, NoneArg{}));
}

// (self, p, dim, maxnorm): slices along dim whose norm is larger are scaled down to it.
void renorm(Builder& b) {
  ValueId x = b.compute(b.tensor(0));
  only_floats(b, b.tensor(0));
  size_t rank = b.rank(x);
  if (rank < 2) throw NoRule{};
  double most = b.number(3);
  ValueId n = b.vector_norm(x, b.args.at(1), b.list(all_but(rank, b.dim(2, rank))), true, NoneArg{});
  ValueId factor = b.call(Op::mul_Scalar, {b.unary(Op::reciprocal, b.add(n, 1e-7)), most});
  factor = b.where(b.call(Op::gt_Scalar, {n, most}), factor, 1.0);
  b.set(0, b.mul(x, factor));
}

// (v, g, dim): v scaled to the norms g; and the norms that it had.
void weight_norm(Builder& b) {
  ValueId v = b.compute(b.tensor(0)), g = b.compute(b.tensor(1));
  only_floats(b, b.tensor(0));
  size_t rank = b.rank(v);
  ValueId n = b.unary(Op::sqrt, b.sum(b.mul(v, v), all_but(rank, b.dim(2, rank)), true));
  b.set(0, b.mul(v, b.div(g, n)));
  b.set(1, n);
}
// (grad, v, g, norms, dim)
void weight_norm_backward(Builder& b) {
  ValueId grad = b.compute(b.tensor(0)), v = b.compute(b.tensor(1)), g = b.compute(b.tensor(2)),
          n = b.compute(b.tensor(3));
  only_floats(b, b.tensor(1));
  size_t rank = b.rank(v);
  ValueId along = b.sum(b.mul(grad, v), all_but(rank, b.dim(4, rank)), true);
  ValueId inverse = b.unary(Op::reciprocal, n);
  ValueId part = b.mul(v, b.mul(along, b.mul(b.mul(inverse, inverse), inverse)));
  b.set(0, b.mul(g, b.sub(b.mul(grad, inverse), part)));
  b.set(1, b.mul(along, inverse));
}

// (self, other, dim): of three components each.
void cross(Builder& b) {
  ValueId x = b.tensor(0), y = b.tensor(1);
  size_t rank = b.result(0).dim(), d = b.dim(2, rank);
  b.refuse_complex(x);
  if (b.rank(x) != rank || b.rank(y) != rank || b.type(x).dtype != b.type(y).dtype || b.type(x).dtype == DType::Bool)
    throw NoRule{};
  for (Expr s : b.result(0).sizes)
    if (b.arena().is_const(s, 0)) throw NoRule{};
  auto next = [&](ValueId v, int64_t by) {
    return b.compute(b.call(Op::roll, {v, b.list({-by}), b.list({static_cast<int64_t>(d)})}));
  };
  b.set(0, b.sub(b.mul(next(x, 1), next(y, 2)), b.mul(next(x, 2), next(y, 1))));
}

// (self, other): self * 2^other
void ldexp(Builder& b) {
  ValueId x = b.tensor(0), y = b.tensor(1);
  b.refuse_complex(x);
  b.refuse_complex(y);
  b.set(0, b.mul(x, b.unary(Op::exp2, y)));
}

// (self, p): the multivariate logarithm of gamma.
void mvlgamma(Builder& b) {
  ValueId x = b.compute(b.tensor(0));
  int64_t p = b.integer(1);
  if (p < 1 || p > 8 || !is_floating(b.result(0).dtype)) throw NoRule{};
  ValueId sum = b.unary(Op::lgamma, x);
  for (int64_t k = 1; k < p; ++k) sum = b.add(sum, b.unary(Op::lgamma, b.sub(x, 0.5 * static_cast<double>(k))));
  b.set(0, b.add(sum, static_cast<double>(p * (p - 1)) / 4 * std::log(std::numbers::pi)));
}

// (grad, self, noise, lower, upper, training, self_is_result): the noise holds the slopes that were drawn.
void rrelu_backward(Builder& b) {
  ValueId grad = b.tensor(0), x = b.tensor(1), noise = b.tensor(2);
  double lower = b.number(3), upper = b.number(4);
  if (b.flag(5) && upper - lower > 1e-6) return b.set(0, b.mul(noise, grad));
  b.set(0, b.call(Op::leaky_relu_backward, {grad, x, (lower + upper) / 2, b.flag(6)}));
}

}  // namespace

std::span<const NamedRule> few_rules() {
  static constexpr NamedRule kRules[] = {
      {"aten::norm.ScalarOpt_dtype", norm_of_dtype},
      {"aten::norm.ScalarOpt_dim_dtype", norm_of_dims_and_dtype},
      {"aten::linalg__powsum", powsum},
      {"aten::dist", dist},
      {"aten::renorm", renorm},
      {"aten::_weight_norm_interface", weight_norm},
      {"aten::_weight_norm_interface_backward", weight_norm_backward},
      {"aten::linalg_cross", cross},
      {"aten::ldexp.Tensor", ldexp},
      {"aten::mvlgamma", mvlgamma},
      {"aten::rrelu_with_noise_backward", rrelu_backward},
  };
  return kRules;
}

}  // namespace braze::passes
