// Odd functions that are flat for large arguments, where lanes can pick from tables of 32 floats in registers: 32 short
// polynomials, whose coefficients are picked per lane.
#pragma once
#include "codegen/llvm/vector_builder.h"

namespace braze::codegen::ir {

// Whether vectors shaped like `x` can be computed this way.
bool has_pieces(const VectorBuilder& b, Value* x);
Value* tanh_pieces(VectorBuilder& b, Value* x);  // error below 1.1 units in the last place
Value* erf_pieces(VectorBuilder& b, Value* x);   // below 2

}  // namespace braze::codegen::ir
