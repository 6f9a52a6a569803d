// The generated kernels' way to PyTorch's thread pool (OpenMP's, which libtorch shares).
#include <ATen/Parallel.h>
#include <omp.h>

#include <algorithm>

#include "codegen/codegen.h"
#include "launch/extern.h"

namespace braze::launch {

void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*fn)(void* ctx, int64_t lo, int64_t hi), void* ctx) {
  int64_t n = end - begin;
  if (n <= 0) return;
  at::internal::lazy_init_num_threads();
  if (n <= grain || n == 1 || omp_in_parallel() || omp_get_max_threads() == 1) {
    fn(ctx, begin, end);
    return;
  }
  int64_t most = grain > 0 ? (n + grain - 1) / grain : n;
#pragma omp parallel
  {
    int64_t threads = std::min<int64_t>(omp_get_num_threads(), most);
    int64_t chunk = (n + threads - 1) / threads;
    int64_t lo = begin + omp_get_thread_num() * chunk;
    if (lo < end) fn(ctx, lo, std::min(end, lo + chunk));
  }
}

void install_parallel_for() {
  static bool once = (codegen::set_parallel_for(parallel_for, at::get_num_threads), true);
  (void)once;
}

}  // namespace braze::launch
