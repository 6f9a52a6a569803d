// Whether a buffer may be an input's own memory, by what it looks like.
#pragma once
#include "loop/loop.h"

namespace braze::schedule {

inline bool stands_for_input(const loop::Buffer& b, uint32_t input) {
  return (b.kind == loop::BufferKind::Input || b.kind == loop::BufferKind::Constant) && b.input == input;
}

// All of the buffer, as it lies.
inline bool is_whole(const loop::Program& p, const loop::View& v) {
  const loop::Buffer& b = p.buffers[v.buffer];
  return p.arena->is_const(v.offset, 0) && v.sizes == b.sizes && v.strides == b.strides && v.dtype == b.dtype;
}

inline bool same_layout(const loop::Buffer& a, const loop::Buffer& b) {
  return a.sizes == b.sizes && a.strides == b.strides && a.dtype == b.dtype && a.device == b.device;
}

}  // namespace braze::schedule
