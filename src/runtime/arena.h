// Scratch memory of running programs: one block per thread and nesting depth, shared by all programs and kept between calls.
#pragma once
#include <cstddef>

namespace braze::runtime {

inline constexpr size_t kAlignment = 64;

// Holds the thread's block of the current depth while a program runs. A program that runs inside another one's extern call
// gets the next block. Not to be moved to another thread.
class ArenaLease {
 public:
  explicit ArenaLease(size_t bytes);
  ~ArenaLease();
  ArenaLease(const ArenaLease&) = delete;
  ArenaLease& operator=(const ArenaLease&) = delete;
  std::byte* base() const { return base_; }

 private:
  std::byte* base_;
};

// Gives back this thread's blocks that no program holds; returns how many bytes that was.
size_t trim_arena();

}  // namespace braze::runtime
