// What the emitter knows about the machine it writes for.
#pragma once
#include <string>

namespace braze::codegen::cpu {

struct Isa {
  std::string cpu, features;                // LLVM's names, as function attributes
  int bits = 128;                           // widest vector register
  bool avx512 = false;                      // F, BW, DQ and VL
  bool avx2 = false;                        // with FMA and F16C
  int64_t cache_bytes = int64_t{32} << 20;  // of the last level
  int lanes(int element_bytes) const { return bits / 8 / element_bytes; }
};

}  // namespace braze::codegen::cpu
