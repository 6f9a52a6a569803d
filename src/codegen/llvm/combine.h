// What a reduction starts from and how two partial results become one; the same for all targets.
//
// Parts: one value; ArgMax and ArgMin have the value and its i64 index; the Welford pair mean, sum of squared
// deviations and count (a float); a sum of exponentials the maximum and the sum relative to it. Where partial results
// were made apart from each other, a fourth part is a value near the mean, to which the mean is relative: a mean far
// from zero would be rounded by more than the deviations are worth.
#pragma once
#include "codegen/llvm/arith.h"

namespace braze::codegen::ir {

// `operand`: dtype of what is reduced. `type`: of the part, a scalar or vector.
Value* reduce_identity(VectorBuilder& b, loop::ReduceKind kind, DType operand, int part, Type* type);
// into = into combined with from; `into` is what comes first. `later`: every index in `from` is greater than that in
// `into`, or marks an element that does not exist and has the identity's value (ArgMax and ArgMin: what compares
// indices is left out).
void reduce_combine(VectorBuilder& b, loop::ReduceKind kind, DType operand, Value** into, Value* const* from,
                    bool later = false);
// What exponents are relative to where `top` is the maximum of what was seen: `top`, or 0 where that is -inf, so that
// the terms of -inf are 0 and not NaN. NaN of a maximum of NaN or inf is NaN's own.
Value* exponent_base(VectorBuilder& b, Value* top);
// e^(x - base), for x that is not above the maximum that `base` is of.
Value* exponential(VectorBuilder& b, Value* x, Value* base);
// The sum as it is handed out: NaN where nothing is above -inf, as in eager, where that is subtracted from itself.
Value* exponent_sum(VectorBuilder& b, Value* top, Value* sum);
// Makes the mean of `from` relative to what the mean of `into` is relative to. Four parts each.
void align_welford(VectorBuilder& b, Value** into, Value** from);

}  // namespace braze::codegen::ir
