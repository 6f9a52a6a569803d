// What kernels call on AArch64: nothing of its own. LLVM's instructions convert half precision.
#include "codegen/cpu/host.h"

#if defined(__aarch64__)
namespace braze::codegen::cpu {

TransposeSquare* transpose_square(int64_t) { return nullptr; }
Symbols host_symbols() { return {}; }

}  // namespace braze::codegen::cpu
#endif
