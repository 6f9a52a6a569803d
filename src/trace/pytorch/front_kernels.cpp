#include "trace/pytorch/front_kernels.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <stdexcept>
#include <string>

namespace braze::pytorch {

void check_front_key() {
  if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kFrontKey))
    throw std::runtime_error(std::string("braze: this version of PyTorch has taken the dispatch key ") +
                             c10::toString(kFrontKey) + ", which braze traces with");
}

// Never undone: PyTorch would go through all operators again while the process ends.
void install_front_kernels() {
  auto* others = new torch::Library(torch::Library::IMPL, "_", kFrontKey, __FILE__, __LINE__);
  others->fallback(torch::CppFunction::makeFallthrough());
  install_batch_norm();
  install_symbolic_matmul();
  install_clamp();
  install_softshrink();
  install_max_pool1d();
  install_copy();
  install_views();
  install_geometry();
  install_open_sizes();
}

}  // namespace braze::pytorch
