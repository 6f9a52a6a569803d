// Scratch memory of running programs. Small blocks are kept, one per thread and nesting depth, for all programs; large
// ones come from the pool and go back to it after each run, so that results take their place in the meantime.
#pragma once
#include <cstddef>

namespace braze::runtime {

inline constexpr size_t kAlignment = 64;

// Holds a block while a program runs. A program that runs inside another one's extern call gets the next one. Not to be
// moved to another thread. Throws std::bad_alloc.
class ArenaLease {
 public:
  explicit ArenaLease(size_t bytes);
  ~ArenaLease();
  ArenaLease(const ArenaLease&) = delete;
  ArenaLease& operator=(const ArenaLease&) = delete;
  std::byte* base() const { return base_; }

 private:
  std::byte* base_;
  bool pooled_;
};

}  // namespace braze::runtime
