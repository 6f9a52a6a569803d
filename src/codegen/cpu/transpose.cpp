#include "codegen/cpu/transpose.h"

#include "codegen/cpu/host.h"

namespace braze::codegen::cpu {
namespace {

template <class T>
void plain(const T* from, int64_t stride, T* into, int64_t step, int64_t rows, int64_t columns) {
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) into[i * step + j] = from[j * stride + i];
}

template <class T>
void squares(TransposeSquare<T>* whole, const T* from, int64_t stride, T* into, int64_t step, int64_t rows,
             int64_t columns, int64_t width) {
  if (whole && rows == width && columns == width)
    whole(from, stride, into, step);
  else
    plain(from, stride, into, step, rows, columns);
}

}  // namespace

void transpose1(const uint8_t* from, int64_t stride, uint8_t* into, int64_t step, int64_t rows, int64_t columns,
                int64_t) {
  plain(from, stride, into, step, rows, columns);
}

void transpose2(const uint16_t* from, int64_t stride, uint16_t* into, int64_t step, int64_t rows, int64_t columns,
                int64_t width) {
  squares(transpose_square2(width), from, stride, into, step, rows, columns, width);
}

void transpose4(const uint32_t* from, int64_t stride, uint32_t* into, int64_t step, int64_t rows, int64_t columns,
                int64_t width) {
  squares(transpose_square4(width), from, stride, into, step, rows, columns, width);
}

void transpose8(const uint64_t* from, int64_t stride, uint64_t* into, int64_t step, int64_t rows, int64_t columns,
                int64_t) {
  plain(from, stride, into, step, rows, columns);
}

}  // namespace braze::codegen::cpu
