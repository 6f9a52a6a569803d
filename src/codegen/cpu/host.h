// Code for the process's own architecture that a compiler made of C++ and that kernels call; one file per architecture.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace braze::codegen::cpu {

using Symbols = std::vector<std::pair<std::string, void*>>;
// What code of LLVM's calls on this architecture alone.
Symbols host_symbols();

// into[i * step + j] = from[j * stride + i] for i, j < width; nullptr: none for such a width.
using TransposeSquare = void(const uint32_t* from, int64_t stride, uint32_t* into, int64_t step);
TransposeSquare* transpose_square(int64_t width);

}  // namespace braze::codegen::cpu
