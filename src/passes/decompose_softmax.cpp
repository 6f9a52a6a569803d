// Softmax and its kin: the maximum is subtracted before the exponential.
#include <limits>

#include "passes/builder.h"

namespace braze::passes {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// Rank 0 has one element along its one dimension.
int64_t along(const Builder& b, ValueId x) {
  if (b.rank(x) == 0) throw NoRule{};
  return static_cast<int64_t>(b.dim(1, b.rank(x)));
}

ValueId softmax_of(Builder& b, ValueId x, int64_t d) {
  ValueId e = b.unary(Op::exp, b.sub(x, b.amax(x, {d}, true)));
  return b.mul(e, b.unary(Op::reciprocal, b.sum(e, {d}, true)));  // one division per row
}

void softmax(Builder& b) {
  ValueId x = b.compute(b.tensor(0));
  b.set(0, softmax_of(b, x, along(b, x)));
}

void log_softmax(Builder& b) {
  ValueId x = b.compute(b.tensor(0));
  int64_t d = along(b, x);
  ValueId shifted = b.sub(x, b.amax(x, {d}, true));
  b.set(0, b.sub(shifted, b.unary(Op::log, b.sum(b.unary(Op::exp, shifted), {d}, true))));
}

// A row that is masked out altogether gives zeros.
void safe_softmax(Builder& b) {
  ValueId x = b.compute(b.cast(b.tensor(0), b.result(0).dtype));
  int64_t d = along(b, x);
  ValueId masked = b.call(Op::all_dim, {b.call(Op::eq_Scalar, {x, -kInf}), b.k(d), true});
  b.set(0, b.where(masked, 0.0, softmax_of(b, x, d)));
}

void logsumexp(Builder& b) {
  ValueId x = b.compute(b.tensor(0));
  if (!is_floating(b.type(x).dtype)) throw NoRule{};
  std::vector<int64_t> dims;
  for (Expr e : b.ints(1)) {
    int64_t d = b.arena().as_const(e).value();
    dims.push_back(d < 0 ? d + static_cast<int64_t>(b.rank(x)) : d);
  }
  if (dims.empty()) throw NoRule{};
  ValueId top = b.amax(x, dims, true);
  ValueId infinite = b.call(Op::eq_Scalar, {b.unary(Op::abs, top), kInf});
  top = b.where(infinite, 0.0, top);
  ValueId r = b.add(b.unary(Op::log, b.sum(b.unary(Op::exp, b.sub(x, top)), dims, true)), top);
  b.set(0, b.view(r, b.result(0).sizes));
}

void softmax_backward(Builder& b) {
  ValueId grad = b.compute(b.tensor(0)), y = b.compute(b.tensor(1));
  if (b.rank(grad) == 0) throw NoRule{};
  auto d = static_cast<int64_t>(b.dim(2, b.rank(grad)));
  b.set(0, b.mul(b.sub(grad, b.sum(b.mul(grad, y), {d}, true)), y));
}

void log_softmax_backward(Builder& b) {
  ValueId grad = b.compute(b.tensor(0)), y = b.compute(b.tensor(1));
  if (b.rank(grad) == 0) throw NoRule{};
  auto d = static_cast<int64_t>(b.dim(2, b.rank(grad)));
  b.set(0, b.sub(grad, b.mul(b.unary(Op::exp, y), b.sum(grad, {d}, true))));
}

}  // namespace

DecomposeRule softmax_rule(Op op) {
  switch (op) {
    case Op::_softmax: return softmax;
    case Op::_log_softmax: return log_softmax;
    case Op::_safe_softmax: return safe_softmax;
    case Op::logsumexp: return logsumexp;
    case Op::_softmax_backward_data: return softmax_backward;
    case Op::_log_softmax_backward_data: return log_softmax_backward;
    default: return nullptr;
  }
}

}  // namespace braze::passes
