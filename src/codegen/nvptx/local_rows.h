// A nest's private buffers: where they are in its kernel, and whether the memory of a block holds them.
#pragma once
#include <map>

#include "codegen/nvptx/shape.h"

namespace braze::codegen::nvptx {

struct LocalRow {
  bool in_registers = true;
  uint64_t elements = 0;  // of one point's
};

// By buffer. Throws Unsupported for one of symbolic size that is not in registers.
std::map<uint32_t, LocalRow> local_rows(const loop::Program& program, const loop::Nest& nest, const Shape& shape);

// Whether the private buffers of as many points as a block has fit its memory beside what combines partial results.
bool fits_block(const loop::Program& program, const loop::Nest& nest, const Shape& shape, const Target& target);

}  // namespace braze::codegen::nvptx
