#include "passes/zero_softmax.h"

#include <limits>

namespace braze::passes {

Weights zero_softmax(Builder& b, ValueId scores) {
  const auto last = static_cast<int64_t>(b.rank(scores)) - 1;
  const double lowest = std::numeric_limits<float>::lowest(), least = std::numeric_limits<float>::min();
  ValueId most = b.amax(scores, {last}, true);
  ValueId weights = b.unary(Op::exp, b.sub(scores, b.call(Op::clamp_min, {most, lowest})));
  return {weights, b.call(Op::clamp_min, {b.sum(weights, {last}, true), least}), most};
}

}  // namespace braze::passes
