// Gradients of normalisations: sums over what was normalised, then one pointwise formula.
#include "passes/builder.h"

namespace braze::passes {
namespace {

// d loss / d x of y = (x - mean) * rstd, for the gradient g of y: rstd * (g - mean(g) - xhat * mean(g * xhat)).
ValueId through_normalisation(Builder& b, ValueId g, ValueId xhat, ValueId rstd, const std::vector<int64_t>& dims) {
  ValueId mean_g = b.mean(g, dims, true), mean_gx = b.mean(b.mul(g, xhat), dims, true);
  return b.mul(b.sub(b.sub(g, mean_g), b.mul(xhat, mean_gx)), rstd);
}

void layer_norm_backward(Builder& b) {
  ValueId g = b.compute(b.tensor(0)), x = b.compute(b.tensor(1));
  ValueId mean = b.compute(b.tensor(3)), rstd = b.compute(b.tensor(4)), weight = b.compute(b.optional_tensor(5));
  size_t lead = b.rank(x) - b.ints(2).size();
  if (lead == b.rank(x)) throw NoRule{};
  std::vector<int64_t> outer, inner;
  for (size_t d = 0; d < b.rank(x); ++d) (d < lead ? outer : inner).push_back(static_cast<int64_t>(d));
  ValueId xhat = b.mul(b.sub(x, mean), rstd);
  auto reduce = [&](ValueId v) { return outer.empty() ? v : b.sum(v, outer, false); };
  if (b.wants(0)) b.set(0, through_normalisation(b, weight.valid() ? b.mul(g, weight) : g, xhat, rstd, inner));
  if (b.wants(1)) b.set(1, reduce(b.mul(g, xhat)));
  if (b.wants(2)) b.set(2, reduce(g));
}

// `mean` and `rstd`: per channel, of this batch where `train`, else the running ones.
void batch_norm_gradients(Builder& b, ValueId g, ValueId x, ValueId weight, ValueId mean, ValueId rstd, bool train) {
  size_t rank = b.rank(x);
  std::vector<int64_t> dims{0};
  for (size_t d = 2; d < rank; ++d) dims.push_back(static_cast<int64_t>(d));
  rstd = b.per_channel(rstd, rank);
  ValueId xhat = b.mul(b.sub(x, b.per_channel(mean, rank)), rstd);
  ValueId gw = weight.valid() ? b.mul(g, b.per_channel(weight, rank)) : g;
  if (b.wants(0)) b.set(0, train ? through_normalisation(b, gw, xhat, rstd, dims) : b.mul(gw, rstd));
  if (b.wants(1)) b.set(1, b.sum(b.mul(g, xhat), dims, false));
  if (b.wants(2)) b.set(2, b.sum(g, dims, false));
}

void batch_norm_backward(Builder& b) {
  ValueId g = b.compute(b.tensor(0)), x = b.compute(b.tensor(1)), weight = b.compute(b.optional_tensor(2));
  if (b.rank(x) < 2) throw NoRule{};
  bool train = b.flag(7);
  ValueId mean = b.compute(b.tensor(train ? 5 : 3));
  ValueId rstd = train ? b.compute(b.tensor(6)) : b.unary(Op::rsqrt, b.add(b.compute(b.tensor(4)), b.number(8)));
  batch_norm_gradients(b, g, x, weight, mean, rstd, train);
}

// (input, grad, weight, running mean, running variance, mean, rstd, eps, reserve): in training alone
void cudnn_batch_norm_backward(Builder& b) {
  ValueId x = b.compute(b.tensor(0)), g = b.compute(b.tensor(1)), weight = b.compute(b.tensor(2));
  if (b.rank(x) < 2) throw NoRule{};
  batch_norm_gradients(b, g, x, weight, b.compute(b.tensor(5)), b.compute(b.tensor(6)), true);
}

// (grad, input, mean, rstd, weight, N, C, HxW, groups, mask)
void group_norm_backward(Builder& b) {
  ValueId grad = b.tensor(0), input = b.tensor(1), weight = b.compute(b.optional_tensor(4));
  Expr n = std::get<Expr>(b.args.at(5)), channels = std::get<Expr>(b.args.at(6)), area = std::get<Expr>(b.args.at(7));
  int64_t groups = b.integer(8);
  for (ValueId v : {grad, input})
    if (groups < 1 || !graph::infer(Op::view, {v, IntList{{n, channels, area}}},
                                    {[&](ValueId u) { return graph::Operand{&b.type(u), false}; }, b.arena()}))
      throw NoRule{};
  auto per_channel = [&](ValueId v) { return b.view(v, {n, channels, area}); };
  auto per_group = [&](ValueId v) {
    return b.view(v, {n, b.k(groups), b.arena().mul(b.arena().floordiv(channels, b.k(groups)), area)});
  };
  auto statistic = [&](size_t i) { return b.view(b.compute(b.tensor(i)), {n, b.k(groups), b.k(1)}); };
  ValueId g = per_channel(b.compute(grad)), rstd = statistic(3);
  ValueId xhat = b.mul(b.sub(per_group(b.compute(input)), statistic(2)), rstd);
  if (b.wants(0)) {
    ValueId gw = per_group(weight.valid() ? b.mul(g, b.per_channel(weight, 3)) : g);
    b.set(0, b.view(through_normalisation(b, gw, xhat, rstd, {2}), b.result(0).sizes));
  }
  if (b.wants(1)) b.set(1, b.sum(b.mul(g, per_channel(xhat)), {0, 2}, false));
  if (b.wants(2)) b.set(2, b.sum(g, {0, 2}, false));
}

// (grad, input, normalized_shape, rstd, weight, mask)
void rms_norm_backward(Builder& b) {
  ValueId g = b.compute(b.tensor(0)), x = b.compute(b.tensor(1)), rstd = b.compute(b.tensor(3)),
          weight = b.compute(b.optional_tensor(4));
  size_t lead = b.rank(x) - b.ints(2).size();
  if (lead == b.rank(x)) throw NoRule{};
  std::vector<int64_t> outer, inner;
  for (size_t d = 0; d < b.rank(x); ++d) (d < lead ? outer : inner).push_back(static_cast<int64_t>(d));
  ValueId xhat = b.mul(x, rstd), gw = weight.valid() ? b.mul(g, weight) : g;
  if (b.wants(0)) b.set(0, b.mul(b.sub(gw, b.mul(xhat, b.mean(b.mul(gw, xhat), inner, true))), rstd));
  if (b.wants(1)) b.set(1, outer.empty() ? b.mul(g, xhat) : b.sum(b.mul(g, xhat), outer, false));
}

}  // namespace

DecomposeRule norm_backward_rule(Op op) {
  switch (op) {
    case Op::native_layer_norm_backward: return layer_norm_backward;
    case Op::native_batch_norm_backward: return batch_norm_backward;
    case Op::cudnn_batch_norm_backward: return cudnn_batch_norm_backward;
    case Op::native_group_norm_backward: return group_norm_backward;
    case Op::_fused_rms_norm_backward: return rms_norm_backward;
    default: return nullptr;
  }
}

}  // namespace braze::passes
