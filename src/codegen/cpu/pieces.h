// Odd functions that are flat for large arguments, in vectors of 16 floats: 32 short polynomials, whose coefficients
// lie in pairs of registers and are picked per lane by a two-register permutation (AVX-512).
#pragma once
#include "codegen/cpu/vector_builder.h"

namespace braze::codegen::cpu {

// Whether vectors shaped like `x` can be computed this way.
bool has_pieces(const VectorBuilder& b, Value* x);
Value* tanh_pieces(VectorBuilder& b, Value* x);  // error below 1.1 units in the last place
Value* erf_pieces(VectorBuilder& b, Value* x);   // below 2.3

}  // namespace braze::codegen::cpu
