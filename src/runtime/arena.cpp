#include "runtime/arena.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>
#include <vector>

namespace braze::runtime {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

struct Block {
  std::byte* base = nullptr;
  size_t bytes = 0;

  Block() = default;
  Block(Block&& o) noexcept : base(o.base), bytes(o.bytes) { o.base = nullptr, o.bytes = 0; }
  Block& operator=(Block&&) = delete;
  ~Block() { std::free(base); }

  void grow(size_t wanted) {
    std::free(base);
    base = nullptr, bytes = 0;
    bool huge = wanted >= 2 * kHugePage;
    size_t alignment = huge ? kHugePage : kAlignment;
    size_t size = (wanted + alignment - 1) / alignment * alignment;
    base = static_cast<std::byte*>(std::aligned_alloc(alignment, size));
    if (!base) throw std::bad_alloc();
    bytes = size;
    // Fewer page faults and TLB misses; a refusal costs speed only.
    if (huge) (void)madvise(base, size, MADV_HUGEPAGE);
  }
};

struct Blocks {
  std::vector<Block> stack;
  size_t depth = 0;
};

Blocks& blocks() {
  thread_local Blocks b;
  return b;
}

}  // namespace

ArenaLease::ArenaLease(size_t bytes) {
  Blocks& b = blocks();
  if (b.stack.size() == b.depth) b.stack.emplace_back();
  Block& block = b.stack[b.depth];
  if (block.bytes < bytes) block.grow(bytes);
  base_ = block.base;
  ++b.depth;
}

ArenaLease::~ArenaLease() { --blocks().depth; }

size_t trim_arena() {
  Blocks& b = blocks();
  size_t freed = 0;
  while (b.stack.size() > b.depth) {
    freed += b.stack.back().bytes;
    b.stack.pop_back();
  }
  return freed;
}

}  // namespace braze::runtime
