#include "runtime/pool.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fork_mutex.h"

namespace braze::runtime {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kUnit = size_t{2} << 20;   // a huge page: what is asked from the system and given back as a whole
constexpr size_t kStep = size_t{32} << 20;  // by how much the usable part of the reservation grows
constexpr size_t kLeastReserved = size_t{64} << 20;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// One reserved range of addresses. Blocks are cut from the free extent that fits best, and free neighbours become one
// extent again, so that steps whose sizes differ (the saved values of a forward pass, the gradients of the backward
// one) share the same pages. The range is in huge pages: a fault then brings two megabytes.
class Pool {
 public:
  Pool() {
    size_t memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
    most_ = memory / 8 / kUnit;
    // Addresses cost nothing; a limit on them (ulimit -v) may want fewer.
    for (size_t size = round_up(4 * memory, kUnit); size >= kLeastReserved; size = round_up(size / 2, kUnit)) {
      void* got = mmap(nullptr, size + kUnit, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (got == MAP_FAILED) continue;
      base_ = round_up(reinterpret_cast<uintptr_t>(got), kUnit);
      limit_ = base_ + size;
      (void)madvise(reinterpret_cast<void*>(base_), size, MADV_HUGEPAGE);  // a refusal costs speed only
      break;
    }
    top_ = usable_ = base_;
  }

  void* allocate(size_t wanted) {
    size_t bytes = round_up(std::max<size_t>(wanted, 1), kPage);  // blocks of nothing have addresses of their own, too
    std::lock_guard lock(mutex_);
    uintptr_t at = take(bytes);
    live_.emplace(at, bytes);
    if (!inside(at)) return reinterpret_cast<void*>(at);
    for (size_t u = unit(at); u <= unit(at + bytes - 1); ++u) {
      if (units_[u].blocks++ == 0) ++num_live_;
      if (!std::exchange(units_[u].held, true)) ++num_held_;
    }
    peak_ = std::max(peak_, num_live_);
    keep(peak_);
    return reinterpret_cast<void*>(at);
  }

  void free(void* block) noexcept {
    std::lock_guard lock(mutex_);
    auto found = live_.find(reinterpret_cast<uintptr_t>(block));
    auto [at, bytes] = *found;
    live_.erase(found);
    if (!inside(at)) {
      munmap(block, bytes);
      return;
    }
    for (size_t u = unit(at); u <= unit(at + bytes - 1); ++u)
      if (--units_[u].blocks == 0) --num_live_;
    try {
      put(at, bytes);
    } catch (const std::bad_alloc&) {
      return;  // a range of addresses is lost
    }
    keep(num_live_ + most_);
  }

  size_t trim() {
    std::lock_guard lock(mutex_);
    size_t before = num_held_;
    keep(0);
    return (before - num_held_) * kUnit;
  }

 private:
  bool inside(uintptr_t at) const { return at >= base_ && at < limit_; }
  size_t unit(uintptr_t at) const { return (at - base_) / kUnit; }

  // Makes [top_, end) usable. False, and nothing changes, when the system refuses.
  bool grow(uintptr_t end) {
    if (end > limit_) return false;
    if (end > usable_) {
      uintptr_t to = std::min(limit_, usable_ + round_up(end - usable_, kStep));
      if (mprotect(reinterpret_cast<void*>(usable_), to - usable_, PROT_READ | PROT_WRITE) != 0) return false;
      usable_ = to;
      units_.resize(unit(usable_));
    }
    top_ = end;
    return true;
  }

  // Memory of its own, where the reservation is full: a limit on addresses made it small.
  uintptr_t map(size_t bytes) {
    keep(0);
    void* got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) throw std::bad_alloc();
    return reinterpret_cast<uintptr_t>(got);
  }

  uintptr_t take(size_t bytes) {
    if (auto best = by_size_.lower_bound({bytes, 0}); best != by_size_.end()) {
      auto [size, at] = *best;
      by_size_.erase(best);
      free_.erase(at);
      if (size > bytes) insert(at + bytes, size - bytes);
      return at;
    }
    // A free extent at the top is grown rather than left behind.
    auto last = free_.empty() ? free_.end() : std::prev(free_.end());
    bool joins = last != free_.end() && last->first + last->second == top_;
    uintptr_t at = joins ? last->first : top_;
    if (!grow(at + bytes)) return map(bytes);
    if (joins) erase(last);
    return at;
  }

  void put(uintptr_t at, size_t bytes) {
    auto next = free_.lower_bound(at);
    if (next != free_.end() && next->first == at + bytes) {
      bytes += next->second;
      next = erase(next);
    }
    if (next != free_.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == at) {
        at = previous->first;
        bytes += previous->second;
        erase(previous);
      }
    }
    insert(at, bytes);
  }

  using Extents = std::map<uintptr_t, size_t>;
  void insert(uintptr_t at, size_t bytes) {
    free_.emplace(at, bytes);
    by_size_.emplace(bytes, at);
  }
  Extents::iterator erase(Extents::iterator e) {
    by_size_.erase({e->second, e->first});
    return free_.erase(e);
  }

  // Gives units without a block back to the system until at most so many are held, those of the largest extents first.
  void keep(size_t most) {
    for (auto e = by_size_.rbegin(); e != by_size_.rend() && num_held_ > most; ++e) {
      auto [size, at] = *e;
      uintptr_t end = at + size;
      size_t from = unit(at + kUnit - 1), to = end == top_ ? unit(end + kUnit - 1) : unit(end);
      // From the end on: a block is cut from the front.
      while (to > from && num_held_ > most) {
        size_t first = to;
        while (first > from && units_[first - 1].held && num_held_ > most) units_[--first].held = false, --num_held_;
        if (first < to)
          (void)madvise(reinterpret_cast<void*>(base_ + first * kUnit), (to - first) * kUnit, MADV_DONTNEED);
        to = first < to ? first : to - 1;
      }
    }
  }

  struct Unit {
    uint32_t blocks = 0;  // live ones that overlap it
    bool held = false;    // pages of it may be there
  };

  ForkMutex mutex_;
  uintptr_t base_ = 0, limit_ = 0;  // the reservation
  uintptr_t usable_ = 0,
            top_ = 0;  // base_ <= top_ <= usable_ <= limit_: readable and writable up to usable_, cut up to top_
  Extents free_;       // extents between base_ and top_ that hold no block, by address
  std::set<std::pair<size_t, uintptr_t>> by_size_;
  std::unordered_map<uintptr_t, size_t> live_;
  std::vector<Unit> units_;             // of [base_, usable_)
  size_t num_held_ = 0, num_live_ = 0;  // units that are held, and those with blocks
  size_t peak_ = 0;                     // the most units that had blocks at once: more are never held
  size_t most_ = 0;                     // units held beyond those with blocks
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
