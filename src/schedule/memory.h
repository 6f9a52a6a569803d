// Where each buffer of a scheduled program lives.
//
// Liveness is counted in items: a Temp buffer lives from the first item that writes it to the last that uses it.
// Buffers whose lives do not overlap share bytes of one arena. A nest may be handed the same address for an input that
// dies there and an output that it writes (only where every element is read before it is overwritten, at the same
// index): kernels must not assume that their pointers do not alias. Offsets and sizes are multiples of 64 bytes. Sizes
// that are formulas get a part of the arena of their own, shared by equal formulas.
#pragma once
#include <cstdint>

#include "loop/loop.h"

namespace braze::schedule {

struct Placement {
  enum class Kind : uint8_t {
    None,     // unused, or Local (private to a kernel)
    Input,    // the pointer handed in for graph input `input`, plus `Buffer::offset` elements
    Arena,    // `offset` bytes from the arena's start
    Output,   // an allocation of `bytes` per call, handed to the caller
    Adopted,  // allocated by the extern call that writes it; released after item `last` (an Output buffer is handed to
              // the caller instead)
  };
  Kind kind = Kind::None;
  uint32_t input = 0;             // Input: which graph input; of a buffer that is none: what it is written to
  sym::Expr offset;               // Arena
  sym::Expr bytes;                // of the allocation: Arena (a multiple of 64), Output
  int32_t first = -1, last = -1;  // items that first write and last use it; -1: none. Outputs and writebacks count as a
                                  // use after all items
};

struct MemoryPlan {
  Store<loop::BufferId, Placement> buffers;  // one per buffer of the program
  sym::Expr arena_bytes;
  int64_t peak_bytes = 0;  // greatest sum of live arena bytes, of static sizes only (a lower bound for the arena)
};

struct Use {
  loop::BufferId buffer;
  size_t item = 0;
};

// `uses`: buffers that stay as they are until after that item, and do not become memory of what it writes.
MemoryPlan plan_memory(const loop::Program& program, const std::vector<Use>& uses = {});

}  // namespace braze::schedule
