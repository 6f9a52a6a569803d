// Losses and their gradients. Reductions: 0 none, 1 mean, 2 sum.
#include "passes/builder.h"

namespace braze::passes {
namespace {

void reduced(Builder& b, ValueId loss, int64_t reduction) {
  std::vector<int64_t> all;
  for (size_t d = 0; d < b.rank(loss); ++d) all.push_back(static_cast<int64_t>(d));
  if (reduction == 1 && !all.empty()) loss = b.mean(loss, all, false);
  if (reduction == 2 && !all.empty()) loss = b.sum(loss, all, false);
  b.set(0, loss);
}

void mse(Builder& b) {
  ValueId d = b.sub(b.compute(b.tensor(0)), b.compute(b.tensor(1)));
  reduced(b, b.mul(d, d), b.integer(2));
}

void smooth_l1(Builder& b) {
  double beta = b.number(3);
  ValueId d = b.unary(Op::abs, b.sub(b.compute(b.tensor(0)), b.compute(b.tensor(1))));
  if (beta <= 0) return reduced(b, d, b.integer(2));
  ValueId near = b.div(b.mul(b.mul(d, d), 0.5), beta);
  reduced(b, b.where(b.call(Op::lt_Scalar, {d, beta}), near, b.sub(d, 0.5 * beta)), b.integer(2));
}

void huber(Builder& b) {
  double delta = b.number(3);
  ValueId d = b.unary(Op::abs, b.sub(b.compute(b.tensor(0)), b.compute(b.tensor(1))));
  ValueId far = b.mul(b.sub(d, 0.5 * delta), delta);
  reduced(b, b.where(b.call(Op::le_Scalar, {d, delta}), b.mul(b.mul(d, d), 0.5), far), b.integer(2));
}

// The logarithms are kept above -100, as eager does.
void binary_cross_entropy(Builder& b) {
  ValueId x = b.compute(b.tensor(0)), t = b.compute(b.tensor(1)), w = b.compute(b.optional_tensor(2));
  auto log = [&](Op op, ValueId v) { return b.call(Op::clamp_min, {b.unary(op, v), -100.0}); };
  ValueId loss = b.sub(b.mul(b.sub(t, 1.0), log(Op::log1p, b.unary(Op::neg, x))), b.mul(t, log(Op::log, x)));
  if (w.valid()) loss = b.mul(loss, w);
  reduced(b, loss, b.integer(3));
}

void mse_backward(Builder& b) {
  ValueId g = b.compute(b.tensor(0)), x = b.compute(b.tensor(1)), y = b.compute(b.tensor(2));
  double factor = 2;
  if (b.integer(3) == 1) {
    auto n = b.arena().as_const(b.arena().product(b.type(x).sizes));
    if (!n || *n == 0) throw NoRule{};
    factor /= static_cast<double>(*n);
  }
  b.set(0, b.mul(b.mul(b.sub(x, y), factor), g));
}

struct Targets {
  ValueId counted;  // bool: not the ignored class
  ValueId safe;     // the class, 0 where ignored
  ValueId weight;   // of the class; 0 where ignored; invalid without weights
};

Targets targets_of(Builder& b, ValueId target, ValueId weight, const Arg& ignore) {
  Targets t;
  t.counted = b.call(Op::ne_Scalar, {target, ignore});
  t.safe = b.where(t.counted, target, b.k(0));
  if (weight.valid()) t.weight = b.where(t.counted, b.call(Op::index_select, {b.compute(weight), b.k(0), t.safe}), 0.0);
  return t;
}

void nll_forward(Builder& b) {
  ValueId x = b.compute(b.tensor(0)), target = b.tensor(1);
  int64_t reduction = b.integer(3);
  if (b.rank(x) != 2 || b.rank(target) != 1 || reduction == 0) throw NoRule{};
  Targets t = targets_of(b, target, b.optional_tensor(2), b.args.at(4));
  ValueId picked = b.call(Op::gather, {x, b.k(1), b.unsqueeze(t.safe, 1), false});
  picked = b.unary(Op::neg, b.call(Op::squeeze_dim, {picked, b.k(1)}));
  if (t.weight.valid()) picked = b.mul(picked, t.weight);
  ValueId loss = b.sum(b.where(t.counted, picked, 0.0), {0}, false);
  ValueId total = b.sum(t.weight.valid() ? t.weight : b.cast(t.counted, b.type(x).dtype), {0}, false);
  b.set(0, reduction == 1 ? b.div(loss, total) : loss);
  b.set(1, total);
}

void nll_backward(Builder& b) {
  ValueId g = b.compute(b.tensor(0)), x = b.tensor(1), target = b.tensor(2), total = b.compute(b.tensor(6));
  int64_t reduction = b.integer(4);
  if (b.rank(x) != 2 || b.rank(target) != 1 || b.type(target).dtype != DType::I64) throw NoRule{};
  Targets t = targets_of(b, target, b.optional_tensor(3), b.args.at(5));
  ValueId each = b.unary(Op::neg, reduction == 1 ? b.div(g, total) : g);
  if (t.weight.valid()) each = b.mul(each, t.weight);
  if (b.rank(each) == 1) each = b.unsqueeze(each, 1);
  ValueId classes = b.call(Op::arange_start_step, {b.k(0), b.type(x).sizes[1], b.k(1), DType::I64, NoneArg{}, b.type(x).device, NoneArg{}});
  ValueId hit = b.call(Op::logical_and, {b.call(Op::eq_Tensor, {classes, b.unsqueeze(t.safe, 1)}), b.unsqueeze(t.counted, 1)});
  b.set(0, b.where(hit, each, 0.0));
}

}  // namespace

DecomposeRule loss_rule(Op op) {
  switch (op) {
    case Op::mse_loss: return mse;
    case Op::mse_loss_backward: return mse_backward;
    case Op::smooth_l1_loss: return smooth_l1;
    case Op::huber_loss: return huber;
    case Op::binary_cross_entropy: return binary_cross_entropy;
    case Op::nll_loss_forward: return nll_forward;
    case Op::nll_loss_backward: return nll_backward;
    default: return nullptr;
  }
}

}  // namespace braze::passes
