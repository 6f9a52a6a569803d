// Normalisations. Variances are computed around the mean (var_mean), never as a difference of squares.
#include <limits>

#include "passes/builder.h"

namespace braze::passes {
namespace {

ValueId scale_shift(Builder& b, ValueId y, ValueId weight, ValueId bias) {
  if (weight.valid()) y = b.mul(y, weight);
  if (bias.valid()) y = b.add(y, bias);
  return y;
}

ValueId rstd_of(Builder& b, ValueId var, double eps) { return b.unary(Op::rsqrt, b.add(var, eps)); }

void layer_norm(Builder& b) {
  ValueId x = b.compute(b.tensor(0));
  size_t n = b.ints(1).size();
  std::vector<int64_t> dims;
  for (size_t d = b.rank(x) - n; d < b.rank(x); ++d) dims.push_back(static_cast<int64_t>(d));
  if (dims.empty()) throw NoRule{};
  auto [var, mean] = b.var_mean(x, dims);
  ValueId rstd = rstd_of(b, var, b.number(4));
  ValueId y = b.mul(b.sub(x, mean), rstd);
  b.set(0, scale_shift(b, y, b.compute(b.optional_tensor(2)), b.compute(b.optional_tensor(3))));
  b.set(1, mean);
  b.set(2, rstd);
}

void rms_norm(Builder& b) {
  ValueId input = b.tensor(0), x = b.compute(input);
  size_t n = b.ints(1).size();
  std::vector<int64_t> dims;
  for (size_t d = b.rank(x) - n; d < b.rank(x); ++d) dims.push_back(static_cast<int64_t>(d));
  if (dims.empty()) throw NoRule{};
  double eps;
  if (!std::holds_alternative<NoneArg>(b.args.at(3)))
    eps = b.number(3);
  else if (b.type(x).dtype == DType::F32)  // of the type that is computed in
    eps = std::numeric_limits<float>::epsilon();
  else if (b.type(input).dtype == DType::F64)
    eps = std::numeric_limits<double>::epsilon();
  else
    throw NoRule{};
  ValueId rstd = rstd_of(b, b.mean(b.mul(x, x), dims, true), eps);
  b.set(0, scale_shift(b, b.mul(x, rstd), b.compute(b.optional_tensor(2)), {}));
  b.set(1, rstd);
}

void group_norm(Builder& b) {
  ValueId input = b.tensor(0), x = b.compute(input);
  Expr n = std::get<Expr>(b.args.at(3)), channels = std::get<Expr>(b.args.at(4)), area = std::get<Expr>(b.args.at(5));
  int64_t groups = b.integer(6);
  if (groups < 1 || !graph::infer(Op::view, {input, IntList{{n, channels, area}}},
                                  {[&](ValueId v) { return graph::Operand{&b.type(v), false}; }, b.arena()}))
    throw NoRule{};
  Expr per_group = b.arena().mul(b.arena().floordiv(channels, b.k(groups)), area);
  ValueId grouped = b.view(x, {n, b.k(groups), per_group});
  auto [var, mean] = b.var_mean(grouped, {2});
  ValueId rstd = rstd_of(b, var, b.number(7));
  ValueId y = b.view(b.mul(b.sub(grouped, mean), rstd), b.type(input).sizes);
  size_t rank = b.rank(input);
  y = scale_shift(b, y, b.per_channel(b.compute(b.optional_tensor(1)), rank),
                  b.per_channel(b.compute(b.optional_tensor(2)), rank));
  b.set(0, y);
  if (b.wants(1)) b.set(1, b.view(mean, b.result(1).sizes));
  if (b.wants(2)) b.set(2, b.view(rstd, b.result(2).sizes));
}

// With the statistics that were learnt: one multiplication and one addition per element.
void batch_norm_inference(Builder& b, ValueId mean, ValueId var, double eps) {
  ValueId input = b.tensor(0), x = b.compute(input);
  ValueId weight = b.compute(b.optional_tensor(1)), bias = b.compute(b.optional_tensor(2));
  size_t rank = b.rank(x);
  mean = b.compute(mean);
  ValueId rstd = rstd_of(b, b.compute(var), eps), scale = rstd;
  if (weight.valid()) scale = b.mul(scale, weight);
  ValueId shift = b.mul(mean, scale);
  shift = bias.valid() ? b.sub(bias, shift) : b.unary(Op::neg, shift);
  b.set(0, b.add(b.mul(x, b.per_channel(scale, rank)), b.per_channel(shift, rank)));
  for (size_t i :
       {1, 2}) {  // PyTorch gives empty statistics here, but its decomposition (for some GPU kernels) does not
    if (i >= b.node.outputs.size() || !b.wants(i)) continue;
    if (b.result(i).dim() != 1) throw NoRule{};
    if (!b.arena().is_const(b.result(i).sizes[0], 0)) {
      b.set(i, i == 1 ? mean : rstd);
      continue;
    }
    b.set(i, b.full({b.k(0)}, 0.0, b.result(i).dtype, b.result(i).device));
  }
}

struct BatchStatistics {
  ValueId mean, var;  // [C]
};

BatchStatistics batch_norm_training(Builder& b, double eps) {
  ValueId x = b.compute(b.tensor(0));
  size_t rank = b.rank(x);
  if (rank < 2) throw NoRule{};
  std::vector<int64_t> dims{0};
  for (size_t d = 2; d < rank; ++d) dims.push_back(static_cast<int64_t>(d));
  auto [var, mean] = b.var_mean(x, dims);
  ValueId rstd = rstd_of(b, var, eps);
  ValueId y = b.mul(b.sub(x, mean), rstd);
  b.set(0, scale_shift(b, y, b.per_channel(b.compute(b.optional_tensor(1)), rank),
                       b.per_channel(b.compute(b.optional_tensor(2)), rank)));
  Expr channels = b.type(x).sizes[1];
  BatchStatistics s{b.view(mean, {channels}), b.view(var, {channels})};
  b.set(1, s.mean);
  b.set(2, b.view(rstd, {channels}));
  return s;
}

void batch_norm_no_training(Builder& b) { batch_norm_inference(b, b.tensor(3), b.tensor(4), b.number(6)); }

// Training with running statistics writes to them, so that it stays one call.
void native_batch_norm(Builder& b) {
  if (!b.flag(5)) return batch_norm_inference(b, b.tensor(3), b.tensor(4), b.number(7));
  if (b.optional_tensor(3).valid() || b.optional_tensor(4).valid()) throw NoRule{};
  batch_norm_training(b, b.number(7));
}

void batch_norm_no_stats(Builder& b) {
  if (!b.flag(3)) throw NoRule{};
  batch_norm_training(b, b.number(5));
}

void batch_norm_functional(Builder& b) {
  ValueId running_mean = b.tensor(3), running_var = b.tensor(4);
  double momentum = b.number(6), eps = b.number(7);
  if (!b.flag(5)) {
    batch_norm_inference(b, running_mean, running_var, eps);
    b.set(3, running_mean);
    b.set(4, running_var);
    return;
  }
  BatchStatistics s = batch_norm_training(b, eps);
  std::vector<int64_t> dims{0};
  for (size_t d = 2; d < b.rank(b.tensor(0)); ++d) dims.push_back(static_cast<int64_t>(d));
  auto n = b.arena().as_const(b.count(b.tensor(0), dims));
  if (!n || *n < 2) throw NoRule{};
  ValueId unbiased = b.mul(s.var, static_cast<double>(*n) / static_cast<double>(*n - 1));
  auto blend = [&](ValueId now, ValueId old) {
    return b.add(b.mul(now, momentum), b.mul(b.compute(old), 1 - momentum));
  };
  b.set(3, blend(s.mean, running_mean));
  b.set(4, blend(unbiased, running_var));
}

}  // namespace

DecomposeRule norm_rule(Op op) {
  switch (op) {
    case Op::native_layer_norm: return layer_norm;
    case Op::_fused_rms_norm: return rms_norm;
    case Op::native_group_norm: return group_norm;
    case Op::native_batch_norm:
    case Op::cudnn_batch_norm:  // in inference another name for it; its reserve is used in training alone
    case Op::_native_batch_norm_legit: return native_batch_norm;
    case Op::_native_batch_norm_legit_no_stats: return batch_norm_no_stats;
    case Op::_native_batch_norm_legit_no_training: return batch_norm_no_training;
    case Op::_native_batch_norm_legit_functional: return batch_norm_functional;
    default: return nullptr;
  }
}

}  // namespace braze::passes
