// What kernels call on AArch64: nothing of its own. LLVM's instructions convert half precision.
#include "codegen/cpu/host.h"

#if defined(__aarch64__)
namespace braze::codegen::cpu {

TransposeSquare<uint16_t>* transpose_square2(int64_t) { return nullptr; }
TransposeSquare<uint32_t>* transpose_square4(int64_t) { return nullptr; }
Symbols host_symbols() { return {}; }

}  // namespace braze::codegen::cpu
#endif
