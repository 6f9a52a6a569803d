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
template <class T>
using TransposeSquare = void(const T* from, int64_t stride, T* into, int64_t step);
TransposeSquare<uint16_t>* transpose_square2(int64_t width);
TransposeSquare<uint32_t>* transpose_square4(int64_t width);

}  // namespace braze::codegen::cpu
