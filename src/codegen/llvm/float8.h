// Floats of a byte as f32 and back, by integer arithmetic where the machine has no instruction: every number as
// base/float8.h converts it, NaN as some NaN of its sign.
#pragma once
#include "codegen/llvm/vector_builder.h"

namespace braze::codegen::ir {

// i8 to f32; f32 to i8.
Value* widen_float8(VectorBuilder& b, const Float8& format, Value* bits);
Value* narrow_float8(VectorBuilder& b, const Float8& format, Value* x);

}  // namespace braze::codegen::ir
