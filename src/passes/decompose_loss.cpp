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

// Of prediction and target; booleans, of which there is no difference, count as numbers.
ValueId difference(Builder& b, size_t first = 0) {
  ValueId x = b.compute(b.tensor(first)), y = b.compute(b.tensor(first + 1));
  const DType of_x = b.type(x).dtype, of_y = b.type(y).dtype;
  if (of_y == DType::Bool) y = b.cast(y, of_x);
  if (of_x == DType::Bool) x = b.cast(x, of_y);
  return b.sub(x, y);
}

void mse(Builder& b) {
  ValueId d = difference(b);
  reduced(b, b.mul(d, d), b.integer(2));
}

void smooth_l1(Builder& b) {
  double beta = b.number(3);
  ValueId d = b.unary(Op::abs, difference(b));
  if (beta <= 0) return reduced(b, d, b.integer(2));
  ValueId near = b.div(b.mul(b.mul(d, d), 0.5), beta);
  reduced(b, b.where(b.call(Op::lt_Scalar, {d, beta}), near, b.sub(d, 0.5 * beta)), b.integer(2));
}

void huber(Builder& b) {
  double delta = b.number(3);
  ValueId d = b.unary(Op::abs, difference(b));
  ValueId far = b.mul(b.sub(d, 0.5 * delta), delta);
  reduced(b, b.where(b.call(Op::le_Scalar, {d, delta}), b.mul(b.mul(d, d), 0.5), far), b.integer(2));
}

// The logarithms are kept above -100, as eager does.
void binary_cross_entropy(Builder& b) {
  ValueId x = b.compute(b.tensor(0)), t = b.compute(b.tensor(1)), w = b.compute(b.optional_tensor(2));
  b.check(x, "UnitInput");
  b.check(t, "UnitTarget");
  auto log = [&](Op op, ValueId v) { return b.call(Op::clamp_min, {b.unary(op, v), -100.0}); };
  ValueId loss = b.sub(b.mul(b.sub(t, 1.0), log(Op::log1p, b.unary(Op::neg, x))), b.mul(t, log(Op::log, x)));
  if (w.valid()) loss = b.mul(loss, w);
  reduced(b, loss, b.integer(3));
}

// (input, target, weight, pos_weight, reduction), in logits.
void binary_cross_entropy_with_logits(Builder& b) {
  ValueId x = b.compute(b.tensor(0)), t = b.compute(b.tensor(1)), w = b.compute(b.optional_tensor(2)),
          p = b.compute(b.optional_tensor(3));
  ValueId small = b.unary(Op::log1p, b.unary(Op::exp, b.unary(Op::neg, b.unary(Op::abs, x))));
  ValueId log_sigmoid = b.sub(b.call(Op::clamp_max, {x, 0.0}), small);
  if (p.valid()) log_sigmoid = b.mul(b.add(b.mul(b.sub(p, b.k(1)), t), b.k(1)), log_sigmoid);
  ValueId loss = b.sub(b.mul(b.call(Op::rsub_Scalar, {t, b.k(1), b.k(1)}), x), log_sigmoid);
  if (w.valid()) loss = b.mul(loss, w);
  reduced(b, loss, b.integer(4));
}

void soft_margin(Builder& b) {
  ValueId x = b.compute(b.tensor(0)), t = b.compute(b.tensor(1));
  reduced(b, b.unary(Op::log1p, b.unary(Op::exp, b.mul(b.unary(Op::neg, x), t))), b.integer(2));
}

// 1, or 1 / numel where the loss is a mean.
double share(Builder& b, ValueId x, int64_t reduction) {
  if (reduction != 1) return 1;
  auto n = b.arena().as_const(b.arena().product(b.type(x).sizes));
  if (!n || *n == 0) throw NoRule{};
  return 1.0 / static_cast<double>(*n);
}

void mse_backward(Builder& b) {
  ValueId g = b.compute(b.tensor(0)), d = difference(b, 1);
  b.set(0, b.mul(b.mul(d, 2 * share(b, d, b.integer(3))), g));
}

// +-slope beyond the limit, linear between.
void clipped_gradient(Builder& b, double slope, double inner) {
  ValueId g = b.compute(b.tensor(0)), d = difference(b, 1);
  double limit = b.number(4), norm = share(b, b.tensor(1), b.integer(3));
  ValueId below = b.call(Op::le_Scalar, {d, -limit}), above = b.call(Op::ge_Scalar, {d, limit});
  ValueId far = b.mul(g, norm * slope);
  b.set(0, b.where(below, b.unary(Op::neg, far), b.where(above, far, b.mul(b.mul(d, norm * inner), g))));
}
void smooth_l1_backward(Builder& b) {
  if (b.number(4) <= 0) throw NoRule{};
  clipped_gradient(b, 1, 1 / b.number(4));
}
void huber_backward(Builder& b) { clipped_gradient(b, b.number(4), 1); }

void binary_cross_entropy_backward(Builder& b) {
  ValueId g = b.compute(b.tensor(0)), x = b.compute(b.tensor(1)), t = b.compute(b.tensor(2)),
          w = b.compute(b.optional_tensor(3));
  ValueId width = b.call(Op::clamp_min, {b.mul(b.call(Op::rsub_Scalar, {x, b.k(1), b.k(1)}), x), 1e-12});
  ValueId r = b.div(b.mul(g, b.sub(x, t)), width);
  if (w.valid()) r = b.mul(r, w);
  double norm = share(b, b.tensor(1), b.integer(4));
  b.set(0, norm == 1 ? r : b.mul(r, norm));
}

void soft_margin_backward(Builder& b) {
  ValueId g = b.compute(b.tensor(0)), x = b.compute(b.tensor(1)), t = b.compute(b.tensor(2));
  ValueId z = b.unary(Op::exp, b.mul(b.unary(Op::neg, t), x));
  ValueId slope = b.div(b.mul(b.mul(t, -share(b, b.tensor(1), b.integer(3))), z), b.add(z, b.k(1)));
  b.set(0, b.mul(slope, g));
}

// Of gathers at classes: see gather and index_Tensor in graph/ops.def.
const std::string kMark = "target";

struct Targets {
  ValueId counted;  // bool: not the ignored class
  ValueId safe;     // the class, 0 where ignored
  ValueId weight;   // of the class; 0 where ignored; invalid without weights
};

Targets targets_of(Builder& b, ValueId target, ValueId weight, const Arg& ignore) {
  Targets t;
  t.counted = b.call(Op::ne_Scalar, {target, ignore});
  t.safe = b.where(t.counted, target, b.k(0));
  if (weight.valid())
    t.weight = b.where(t.counted, b.call(Op::index_Tensor, {b.compute(weight), TensorList{t.safe}, kMark}), 0.0);
  return t;
}

// Classes in dimension 1 of [N, C, ...]; the target lacks it.
void nll_forward(Builder& b) {
  ValueId x = b.compute(b.tensor(0)), target = b.tensor(1);
  int64_t reduction = b.integer(3);
  if (b.rank(x) < 2 || b.rank(target) + 1 != b.rank(x) || b.arena().is_const(b.type(x).sizes[1], 0)) throw NoRule{};
  Targets t = targets_of(b, target, b.optional_tensor(2), b.args.at(4));
  ValueId picked = b.call(Op::gather, {x, b.k(1), b.unsqueeze(t.safe, 1), false, kMark});
  picked = b.unary(Op::neg, b.call(Op::squeeze_dim, {picked, b.k(1)}));
  if (t.weight.valid()) picked = b.mul(picked, t.weight);
  picked = b.where(t.counted, picked, 0.0);
  if (reduction == 0) {
    b.set(0, picked);
    b.set(1, b.full({}, 0.0, b.type(x).dtype, b.type(x).device));
    return;
  }
  std::vector<int64_t> all;
  for (size_t d = 0; d < b.rank(target); ++d) all.push_back(static_cast<int64_t>(d));
  ValueId loss = b.sum(picked, all, false);
  ValueId total = b.sum(t.weight.valid() ? t.weight : b.cast(t.counted, b.type(x).dtype), all, false);
  b.set(0, reduction == 1 ? b.div(loss, total) : loss);
  b.set(1, total);
}

void nll_backward(Builder& b) {
  ValueId g = b.compute(b.tensor(0)), x = b.tensor(1), target = b.tensor(2), total = b.compute(b.tensor(6));
  int64_t reduction = b.integer(4);
  if (b.rank(x) < 2 || b.rank(target) + 1 != b.rank(x) || b.type(target).dtype != DType::I64) throw NoRule{};
  Targets t = targets_of(b, target, b.optional_tensor(3), b.args.at(5));
  ValueId each = b.unary(Op::neg, reduction == 1 ? b.div(g, total) : g);
  if (t.weight.valid()) each = b.mul(each, t.weight);
  if (b.rank(each) == b.rank(target)) each = b.unsqueeze(each, 1);
  ValueId classes = b.call(Op::arange_start_step,
                           {b.k(0), b.type(x).sizes[1], b.k(1), DType::I64, NoneArg{}, b.type(x).device, NoneArg{}});
  classes = b.per_channel(classes, b.rank(x));
  ValueId hit =
      b.call(Op::logical_and, {b.call(Op::eq_Tensor, {classes, b.unsqueeze(t.safe, 1)}), b.unsqueeze(t.counted, 1)});
  b.set(0, b.where(hit, each, 0.0));
}

// Of [N, C] scores: how far each class but the target's comes within the margin of the target's score.
struct Margins {
  ValueId over, other,
      weight;  // margin - x[target] + x; whether it is another class; of the target's class, invalid without
  double p;
};

Margins margins_of(Builder& b, ValueId x, ValueId target, size_t first) {
  Margins m;
  m.p = b.number(first);
  if (b.rank(x) != 2 || b.rank(target) != 1 || b.type(target).dtype != DType::I64 || (m.p != 1 && m.p != 2))
    throw NoRule{};
  for (Expr s : b.type(x).sizes)
    if (!b.arena().as_const(s) || b.arena().is_const(s, 0)) throw NoRule{};
  ValueId column = b.unsqueeze(target, 1), score = b.call(Op::gather, {x, b.k(1), column, false});
  m.over = b.add(b.call(Op::rsub_Scalar, {score, b.args.at(first + 1), b.k(1)}), x);
  ValueId classes = b.call(Op::arange_start_step,
                           {b.k(0), b.type(x).sizes[1], b.k(1), DType::I64, NoneArg{}, b.type(x).device, NoneArg{}});
  m.other = b.call(Op::logical_and, {b.call(Op::ne_Tensor, {classes, column}), b.call(Op::gt_Scalar, {m.over, 0.0})});
  if (ValueId w = b.compute(b.optional_tensor(first + 2)); w.valid())
    m.weight = b.call(Op::index_Tensor, {w, TensorList{column}});
  return m;
}

double classes_of(Builder& b, ValueId x) { return static_cast<double>(*b.arena().as_const(b.type(x).sizes[1])); }

// (self, target, p, margin, weight, reduction)
void multi_margin(Builder& b) {
  ValueId x = b.compute(b.tensor(0));
  Margins m = margins_of(b, x, b.tensor(1), 2);
  ValueId each = m.p == 2 ? b.mul(m.over, m.over) : m.over;
  if (m.weight.valid()) each = b.mul(each, m.weight);
  reduced(b, b.div(b.sum(b.where(m.other, each, 0.0), {1}, false), classes_of(b, x)), b.integer(5));
}

// (grad, self, target, p, margin, weight, reduction)
void multi_margin_backward(Builder& b) {
  ValueId grad = b.compute(b.tensor(0)), x = b.compute(b.tensor(1)), target = b.tensor(2);
  Margins m = margins_of(b, x, target, 3);
  double share = 1 / classes_of(b, x);
  if (b.integer(6) == 1) share /= static_cast<double>(*b.arena().as_const(b.type(x).sizes[0]));
  ValueId slope = m.p == 2 ? b.mul(m.over, 2 * share) : b.full({}, share, b.type(x).dtype, b.type(x).device);
  if (m.weight.valid()) slope = b.mul(slope, m.weight);
  ValueId others = b.where(m.other, slope, 0.0);
  ValueId classes = b.call(Op::arange_start_step,
                           {b.k(0), b.type(x).sizes[1], b.k(1), DType::I64, NoneArg{}, b.type(x).device, NoneArg{}});
  ValueId own = b.call(Op::eq_Tensor, {classes, b.unsqueeze(target, 1)});
  ValueId r = b.where(own, b.unary(Op::neg, b.sum(others, {1}, true)), others);
  b.set(0, b.mul(r, b.rank(grad) == 1 ? b.unsqueeze(grad, 1) : grad));
}

}  // namespace

std::span<const NamedRule> loss_rules() {
  static constexpr NamedRule kRules[] = {
      {"aten::multi_margin_loss", multi_margin},
      {"aten::multi_margin_loss_backward", multi_margin_backward},
  };
  return kRules;
}

DecomposeRule loss_rule(Op op) {
  switch (op) {
    case Op::mse_loss: return mse;
    case Op::mse_loss_backward: return mse_backward;
    case Op::smooth_l1_loss: return smooth_l1;
    case Op::huber_loss: return huber;
    case Op::binary_cross_entropy: return binary_cross_entropy;
    case Op::binary_cross_entropy_with_logits: return binary_cross_entropy_with_logits;
    case Op::binary_cross_entropy_backward: return binary_cross_entropy_backward;
    case Op::smooth_l1_loss_backward: return smooth_l1_backward;
    case Op::huber_loss_backward: return huber_backward;
    case Op::soft_margin_loss: return soft_margin;
    case Op::soft_margin_loss_backward: return soft_margin_backward;
    case Op::nll_loss_forward:
    case Op::nll_loss2d_forward: return nll_forward;
    case Op::nll_loss_backward:
    case Op::nll_loss2d_backward: return nll_backward;
    default: return nullptr;
  }
}

}  // namespace braze::passes
