// What is known of values from how they are computed, whatever the data is.
#pragma once
#include <optional>

#include "loop/loop.h"

namespace braze::loop {

// Bounds of a value, inclusive: a number, no NaN. Of what depends on data only as far as it was bounded since.
struct ValueRange {
  double lo = 0, hi = 0;
};
std::optional<ValueRange> value_range(const Program& program, const Nest& nest, ValId value);

// Whether what an Indirect binds is inside of its dimension for certain, so that nothing is to be asked at run time.
bool is_inside(const Program& program, const Nest& nest, const LoopOp& indirect);

}  // namespace braze::loop
