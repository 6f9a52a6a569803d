// Transposition of small squares into scratch memory, which tiled kernels call: as compiled code, because the shuffles
// of one square cost LLVM more time than the rest of a kernel.
//
// into[i * step + j] = from[j * stride + i] for i < rows, j < columns; rows and columns are at most `width`, the lanes
// of a vector, and vectors at into + i * step are aligned. Meanwhile the same is asked for `ahead` elements further,
// where there may be nothing; 0: not. One function per element size in bytes.
#pragma once
#include <cstdint>

namespace braze::codegen::cpu {

void transpose1(const uint8_t* from, int64_t stride, uint8_t* into, int64_t step, int64_t rows, int64_t columns,
                int64_t width, int64_t ahead);
void transpose2(const uint16_t* from, int64_t stride, uint16_t* into, int64_t step, int64_t rows, int64_t columns,
                int64_t width, int64_t ahead);
void transpose4(const uint32_t* from, int64_t stride, uint32_t* into, int64_t step, int64_t rows, int64_t columns,
                int64_t width, int64_t ahead);
void transpose8(const uint64_t* from, int64_t stride, uint64_t* into, int64_t step, int64_t rows, int64_t columns,
                int64_t width, int64_t ahead);

}  // namespace braze::codegen::cpu
