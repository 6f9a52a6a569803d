// No tiles of its own: gemm_nt_pays says so, and PyTorch's library computes the products.
#include "runtime/gemm_tiles.h"

#if defined(__aarch64__)
namespace braze::runtime {

std::span<const Tiles> vector_tiles() { return {}; }

}  // namespace braze::runtime
#endif
