// Elementary functions in double, from LLVM's plain arithmetic alone: for targets without a C library.
// After the methods of fdlibm (Sun Microsystems) and Cephes (S. Moshier): argument reduction, then a polynomial.
#pragma once
#include "codegen/llvm/vector_builder.h"

namespace braze::codegen::nvptx::math64 {

using ir::VectorBuilder;
using llvm::Value;

// The C library's function of this name on scalar doubles. Throws Unsupported for one that is not there.
Value* call(VectorBuilder& b, const std::string& name, llvm::ArrayRef<Value*> operands);
// Exact, like C's.
Value* fmod(VectorBuilder& b, Value* x, Value* y);
// x^y for i64 that wrap; 0 for negative y, but for x = 1 and -1.
Value* integer_power(VectorBuilder& b, Value* x, Value* y);

}  // namespace braze::codegen::nvptx::math64
