// Large blocks for results that programs hand out: freed blocks are kept for the next call, because fresh pages from the
// system cost more than filling them.
#pragma once
#include <cstddef>

namespace braze::runtime {

inline constexpr size_t kPooledBytes = size_t{128} << 10;  // smaller blocks are better left to malloc

// 64-byte aligned, contents undefined. Thread-safe. Throws std::bad_alloc.
void* pool_allocate(size_t bytes);
void pool_free(void* block) noexcept;
// Gives free blocks back to the system; returns their bytes. The pool itself keeps at most an eighth of the machine's memory.
size_t trim_pool();

}  // namespace braze::runtime
