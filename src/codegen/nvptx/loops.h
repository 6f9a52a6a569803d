// Operations of scalars that take loops, for a device without a C library.
#pragma once
#include "codegen/llvm/vector_builder.h"

namespace braze::codegen::nvptx {

// Of doubles. Exact, like C's.
llvm::Value* fmod(ir::VectorBuilder& b, llvm::Value* x, llvm::Value* y);
// x^y for i64 that wrap; 0 for negative y, but for x = 1 and -1.
llvm::Value* integer_power(ir::VectorBuilder& b, llvm::Value* x, llvm::Value* y);

}  // namespace braze::codegen::nvptx
