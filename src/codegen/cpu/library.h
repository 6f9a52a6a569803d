// Elementary functions of whole vectors from SLEEF, which libtorch_cpu exports and ATen computes with. A process
// without that library has none; single lanes then go to the C library.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/cpu/vector_builder.h"

namespace braze::codegen::cpu {

// `name` as in C for double ("sin"), for all lanes of the operands (one shape, f32 or f64).
Value* call_library(VectorBuilder& b, std::string_view name, llvm::ArrayRef<Value*> operands);

// Symbol and address of every vector function found.
const std::vector<std::pair<std::string, void*>>& library_symbols();

}  // namespace braze::codegen::cpu
