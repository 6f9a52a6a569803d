#include "runtime/pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

namespace braze::runtime {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

struct FreeBlock {
  void* memory;
  uint64_t stamp;  // when it was freed
};

// Eight sizes per power of two: at most an eighth is wasted, and sizes that vary a little share blocks.
size_t rounded(size_t bytes) {
  size_t step = std::bit_floor(bytes) / 8;
  return (bytes + step - 1) / step * step;
}

// Blocks are mapped one by one: malloc keeps large blocks that it once gave back. Large ones start with huge pages, but end
// with small ones: the rest of a huge page would be memory that nobody uses.
size_t alignment_of(size_t bytes) { return bytes >= 2 * kHugePage ? kHugePage : 4096; }

// nullptr: the system has none.
void* map(size_t bytes) {
  size_t alignment = alignment_of(bytes), size = bytes, whole = alignment > 4096 ? size + alignment : size;
  void* got = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) return nullptr;
  auto from = reinterpret_cast<uintptr_t>(got), start = (from + alignment - 1) / alignment * alignment;
  auto* memory = reinterpret_cast<void*>(start);
  if (start != from) munmap(got, start - from);
  if (size_t rest = from + whole - (start + size)) munmap(reinterpret_cast<void*>(start + size), rest);
  if (alignment > 4096) (void)madvise(memory, size, MADV_HUGEPAGE);  // a refusal costs speed only
  return memory;
}

class Pool {
 public:
  void* allocate(size_t wanted) {
    size_t bytes = rounded(std::max(wanted, kPooledBytes));
    {
      std::lock_guard lock(mutex_);
      auto it = free_.find(bytes);
      if (it != free_.end() && !it->second.empty()) {
        void* memory = it->second.back().memory;  // the one that is most likely in cache
        bytes_of_[memory] = bytes;
        it->second.pop_back();
        kept_ -= bytes;
        live_ += bytes;
        peak_ = std::max(peak_, live_);
        return memory;
      }
      // What is kept and what is handed out together stay below the most that was ever handed out at once.
      live_ += bytes;
      peak_ = std::max(peak_, live_);
      while (kept_ > 0 && live_ + kept_ > peak_) drop_oldest();
    }
    void* memory = map(bytes);
    if (!memory) {
      trim();
      memory = map(bytes);
    }
    if (!memory) {
      std::lock_guard lock(mutex_);
      live_ -= bytes;
      throw std::bad_alloc();
    }
    std::lock_guard lock(mutex_);
    bytes_of_[memory] = bytes;
    return memory;
  }

  void free(void* block) noexcept {
    std::lock_guard lock(mutex_);
    auto at = bytes_of_.find(block);
    size_t bytes = at->second;
    bytes_of_.erase(at);
    live_ -= bytes;
    try {
      free_[bytes].push_back({block, ++clock_});
    } catch (const std::bad_alloc&) {
      munmap(block, bytes);
      return;
    }
    kept_ += bytes;
    while (kept_ > most_) drop_oldest();
  }

  size_t trim() {
    std::lock_guard lock(mutex_);
    size_t bytes = kept_;
    while (kept_ > 0) drop_oldest();
    return bytes;
  }

 private:
  void drop_oldest() {
    decltype(free_)::value_type* oldest = nullptr;
    for (auto& same : free_)
      if (!same.second.empty() && (!oldest || same.second.front().stamp < oldest->second.front().stamp)) oldest = &same;
    munmap(oldest->second.front().memory, oldest->first);
    oldest->second.pop_front();
    kept_ -= oldest->first;
  }

  std::mutex mutex_;
  std::unordered_map<size_t, std::deque<FreeBlock>> free_;  // by size
  std::unordered_map<void*, size_t> bytes_of_;               // of what is handed out
  size_t kept_ = 0, live_ = 0, peak_ = 0;
  size_t most_ = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE)) / 8;
  uint64_t clock_ = 0;
};

// Never destroyed: tensors may outlive everything else at the end of the process.
Pool& pool() {
  static Pool* p = new Pool;
  return *p;
}

}  // namespace

void* pool_allocate(size_t bytes) { return pool().allocate(bytes); }
void pool_free(void* block) noexcept { pool().free(block); }
size_t trim_pool() { return pool().trim(); }

}  // namespace braze::runtime
