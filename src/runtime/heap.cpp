#include "runtime/heap.h"

#include <malloc.h>

namespace braze::runtime {

void trim_heap([[maybe_unused]] size_t worth) {
#ifdef __GLIBC__
  if (mallinfo2().fordblks >= worth) malloc_trim(0);
#endif
}

}  // namespace braze::runtime
