// The identity of a nest's code: nests with equal keys compile to one kernel.
#pragma once
#include <string>
#include <vector>

#include "loop/loop.h"

namespace braze::codegen::cpu {

// The kernel's arguments, in order of first use.
struct Signature {
  std::vector<loop::BufferId> buffers;  // all but Local ones
  std::vector<sym::Expr> sizes;         // size symbols
  std::string key;                      // text with buffers, symbols and values renumbered
};

Signature signature_of(const loop::Program& program, const loop::Nest& nest);

}  // namespace braze::codegen::cpu
