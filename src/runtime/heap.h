#pragma once
#include <cstddef>

namespace braze::runtime {

// Gives what malloc holds free back to the system, where that is at least `worth` bytes (it takes about 0.2 ms per
// megabyte): compiling, and the first run, leave memory behind that programs, whose large blocks are mapped one by one,
// make no use of.
void trim_heap(size_t worth);

}  // namespace braze::runtime
