// Elementary functions of doubles, and powers of f32 in double, from LLVM's plain arithmetic alone, of scalars and of
// vectors: for targets that multiply and add with one rounding, and those without a C library. IEEE results for NaN,
// infinities, signed zeros and denormals.
// After the methods of fdlibm (Sun Microsystems) and Cephes (S. Moshier): argument reduction, then a polynomial, here
// by minimax fits of the relative error (Remez's exchange).
#pragma once
#include "codegen/llvm/vector_builder.h"

namespace braze::codegen::ir::math64 {

// The C library's function of this name on doubles of one shape: exp, log, sin, cos, erf within 1.2 units in the last
// place. Throws Unsupported for one that is not there.
Value* call(VectorBuilder& b, std::string_view name, llvm::ArrayRef<Value*> operands);
// x^y of f32, within 0.6 units in the last place.
Value* float_pow(VectorBuilder& b, Value* x, Value* y);
// p * 2^n for integral n in [-2000, 2000], with one rounding also where the result is denormal.
Value* scale(VectorBuilder& b, Value* p, Value* n);

}  // namespace braze::codegen::ir::math64
