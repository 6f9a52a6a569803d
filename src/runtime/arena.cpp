#include "runtime/arena.h"

#include <cstdlib>
#include <new>
#include <vector>

#include "runtime/pool.h"

namespace braze::runtime {
namespace {

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
    size_t size = (wanted + kAlignment - 1) / kAlignment * kAlignment;
    base = static_cast<std::byte*>(std::aligned_alloc(kAlignment, size));
    if (!base) throw std::bad_alloc();
    bytes = size;
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

ArenaLease::ArenaLease(size_t bytes) : pooled_(bytes >= kPooledBytes) {
  if (pooled_) {
    base_ = static_cast<std::byte*>(pool_allocate(bytes));
    return;
  }
  Blocks& b = blocks();
  if (b.stack.size() == b.depth) b.stack.emplace_back();
  Block& block = b.stack[b.depth];
  if (block.bytes < bytes) block.grow(bytes);
  base_ = block.base;
  ++b.depth;
}

ArenaLease::~ArenaLease() {
  if (pooled_)
    pool_free(base_);
  else
    --blocks().depth;
}

}  // namespace braze::runtime
