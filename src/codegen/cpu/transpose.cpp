#include "codegen/cpu/transpose.h"

#include "codegen/cpu/host.h"

namespace braze::codegen::cpu {
namespace {

// The lines that begin in these columns, into the second cache: the first may have one place for all of them.
// In line: GCC drops calls of what only prefetches, as they seem to have no effect.
template <class T>
[[gnu::always_inline]] inline void fetch(const T* from, int64_t stride, int64_t rows, int64_t columns, int64_t ahead) {
  constexpr uintptr_t kLine = 64;
  from += ahead;
  if (ahead == 0 || reinterpret_cast<uintptr_t>(from) % kLine >= static_cast<uintptr_t>(rows) * sizeof(T)) return;
  for (int64_t j = 0; j < columns; ++j) __builtin_prefetch(from + j * stride, 0, 2);
}

template <class T>
void plain(const T* from, int64_t stride, T* into, int64_t step, int64_t rows, int64_t columns) {
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = 0; i < rows; ++i) into[i * step + j] = from[j * stride + i];
}

// What is no whole square: smaller ones, and what they leave element by element.
template <class T>
void parts(TransposeSquare<T>* small, const T* from, int64_t stride, T* into, int64_t step, int64_t rows,
           int64_t columns) {
  constexpr int64_t kSmall = 8;
  const int64_t high = small ? rows / kSmall * kSmall : 0, wide = small ? columns / kSmall * kSmall : 0;
  for (int64_t i = 0; i < high; i += kSmall) {
    for (int64_t j = 0; j < wide; j += kSmall) small(from + j * stride + i, stride, into + i * step + j, step);
    plain(from + wide * stride + i, stride, into + i * step + wide, step, kSmall, columns - wide);
  }
  plain(from + high, stride, into + high * step, step, rows - high, columns);
}

template <class T>
void squares(TransposeSquare<T>* whole, TransposeSquare<T>* small, const T* from, int64_t stride, T* into, int64_t step,
             int64_t rows, int64_t columns, int64_t width, int64_t ahead) {
  fetch(from, stride, rows, columns, ahead);
  if (whole && rows == width && columns == width) return whole(from, stride, into, step);
  parts(small, from, stride, into, step, rows, columns);
}

}  // namespace

void transpose1(const uint8_t* from, int64_t stride, uint8_t* into, int64_t step, int64_t rows, int64_t columns,
                int64_t, int64_t ahead) {
  fetch(from, stride, rows, columns, ahead);
  plain(from, stride, into, step, rows, columns);
}

void transpose2(const uint16_t* from, int64_t stride, uint16_t* into, int64_t step, int64_t rows, int64_t columns,
                int64_t width, int64_t ahead) {
  squares(transpose_square2(width), transpose_square2(8), from, stride, into, step, rows, columns, width, ahead);
}

void transpose4(const uint32_t* from, int64_t stride, uint32_t* into, int64_t step, int64_t rows, int64_t columns,
                int64_t width, int64_t ahead) {
  squares(transpose_square4(width), transpose_square4(8), from, stride, into, step, rows, columns, width, ahead);
}

void transpose8(const uint64_t* from, int64_t stride, uint64_t* into, int64_t step, int64_t rows, int64_t columns,
                int64_t, int64_t ahead) {
  fetch(from, stride, rows, columns, ahead);
  plain(from, stride, into, step, rows, columns);
}

}  // namespace braze::codegen::cpu
