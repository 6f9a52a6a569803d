// What generated code may call: the parallel loop, error reports, scratch memory, the C library and vector functions.
#pragma once
#include <string>
#include <utility>
#include <vector>

namespace braze::codegen::cpu {

// Names as kernels use them, with addresses that live as long as the process.
const std::vector<std::pair<std::string, void*>>& runtime_symbols();

}  // namespace braze::codegen::cpu
