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

void batch_norm_backward(Builder& b) {
  ValueId g = b.compute(b.tensor(0)), x = b.compute(b.tensor(1)), weight = b.compute(b.optional_tensor(2));
  size_t rank = b.rank(x);
  if (rank < 2) throw NoRule{};
  bool train = b.flag(7);
  std::vector<int64_t> dims{0};
  for (size_t d = 2; d < rank; ++d) dims.push_back(static_cast<int64_t>(d));
  ValueId mean = b.per_channel(b.compute(b.tensor(train ? 5 : 3)), rank);
  ValueId rstd = train ? b.compute(b.tensor(6)) : b.unary(Op::rsqrt, b.add(b.compute(b.tensor(4)), b.number(8)));
  rstd = b.per_channel(rstd, rank);
  ValueId xhat = b.mul(b.sub(x, mean), rstd);
  ValueId gw = weight.valid() ? b.mul(g, b.per_channel(weight, rank)) : g;
  if (b.wants(0)) b.set(0, train ? through_normalisation(b, gw, xhat, rstd, dims) : b.mul(gw, rstd));
  if (b.wants(1)) b.set(1, b.sum(b.mul(g, xhat), dims, false));
  if (b.wants(2)) b.set(2, b.sum(g, dims, false));
}

}  // namespace

DecomposeRule norm_backward_rule(Op op) {
  switch (op) {
    case Op::native_layer_norm_backward: return layer_norm_backward;
    case Op::native_batch_norm_backward: return batch_norm_backward;
    default: return nullptr;
  }
}

}  // namespace braze::passes
