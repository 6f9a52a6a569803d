// Large blocks for results that programs hand out: pages that were freed are used again by the next call, because fresh
// pages from the system cost more than filling them.
#pragma once
#include <cstddef>

namespace braze::runtime {

inline constexpr size_t kPooledBytes = size_t{128} << 10;  // smaller blocks are better left to malloc

// Aligned to a page, contents undefined. Thread-safe. Throws std::bad_alloc.
void* pool_allocate(size_t bytes);
void pool_free(void* block) noexcept;
// Gives the memory of free blocks back to the system; returns how many bytes. The pool itself keeps what was live at
// once at most, and beyond the live blocks at most an eighth of the machine's memory.
size_t trim_pool();

}  // namespace braze::runtime
