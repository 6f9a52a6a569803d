// Elementary functions. For f32: own polynomials (error bounds in the tests); for f64 those of math64.h, or like rare
// functions a library's. All of them give IEEE results for NaN, infinities, signed zeros and denormals.
#pragma once
#include "codegen/llvm/vector_builder.h"
#include "loop/loop.h"

namespace braze::codegen::ir {

// `code` is one of the transcendental rows of loop/opcodes.def; y only for those with two operands.
Value* emit_math(VectorBuilder& b, loop::OpCode code, Value* x, Value* y);
bool is_math(loop::OpCode code);

}  // namespace braze::codegen::ir
