// The softmax of attention's scores over their last dimension: zeros for a query to which every key is forbidden.
#pragma once
#include "passes/builder.h"

namespace braze::passes {

struct Weights {
  ValueId of_keys;  // by `total` they are the softmax
  ValueId total;    // [.., 1]
  ValueId most;     // the largest score, [.., 1]; -inf for such a query
};
Weights zero_softmax(Builder& b, ValueId scores);

}  // namespace braze::passes
