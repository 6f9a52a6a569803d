// What the rest of this folder asks of a CPU's architecture: a row for each, in files of its own.
#pragma once
#include <memory>
#include <string>

#include "codegen/codegen.h"
#include "codegen/cpu/builder.h"
#include "codegen/cpu/relocations.h"

namespace braze::codegen::cpu {

struct Architecture {
  const char* triple;  // where the process has another architecture
  // LLVM's tables for it. Throws InternalError in a build without them.
  void (*initialise)();
  std::unique_ptr<CpuBuilder> (*builder)(llvm::Module&, const llvm::TargetMachine&, const Target&);
  // The vector facts of a Target from the names of LLVM's features.
  void (*describe)(Target&, const llvm::StringMap<bool>& features);
  const Relocations& relocations;
};

const Architecture& x86();
const Architecture& aarch64();

inline const Architecture& architecture(Target::Architecture a) {
  return a == Target::Architecture::AArch64 ? aarch64() : x86();
}

}  // namespace braze::codegen::cpu
