// What a reduction starts from and how two partial results become one; the same for all targets.
//
// Parts: one value; ArgMax and ArgMin have the value and its i64 index; the Welford pair mean, sum of squared deviations
// and count (a float).
#pragma once
#include "codegen/cpu/arith.h"

namespace braze::codegen::cpu {

// `operand`: dtype of what is reduced. `type`: of the part, a scalar or vector.
Value* reduce_identity(VectorBuilder& b, loop::ReduceKind kind, DType operand, int part, Type* type);
// into = into combined with from; `into` is what comes first.
void reduce_combine(VectorBuilder& b, loop::ReduceKind kind, DType operand, Value** into, Value* const* from);

}  // namespace braze::codegen::cpu
