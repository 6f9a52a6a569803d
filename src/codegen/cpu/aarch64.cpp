// AArch64: NEON, in vectors of 128 bits. There are no masked loads, gathers or scatters: elements are loaded and stored
// one by one. LLVM's plain instructions say everything else.
#include "base/check.h"
#include "codegen/cpu/architecture.h"

// Declared weak: LLVM's backend is in builds for AArch64, and in braze-opt and the tests (cmake/Folders.cmake).
extern "C" {
[[gnu::weak]] void LLVMInitializeAArch64TargetInfo();
[[gnu::weak]] void LLVMInitializeAArch64Target();
[[gnu::weak]] void LLVMInitializeAArch64TargetMC();
[[gnu::weak]] void LLVMInitializeAArch64AsmPrinter();
}

namespace braze::codegen {
namespace cpu {
namespace {

class AArch64Builder final : public CpuBuilder {
 public:
  using CpuBuilder::CpuBuilder;

  bool has_fma() const override { return true; }

  // fmax and fmin give NaN where an operand is one, and order zeros.
  Value* native_max(Value* x, Value* y, bool minimum) override {
    return B.CreateBinaryIntrinsic(minimum ? llvm::Intrinsic::minimum : llvm::Intrinsic::maximum, x, y);
  }
};

void initialise_aarch64() {
  BRAZE_CHECK(LLVMInitializeAArch64Target, "this build has no code generator for AArch64");
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
}

void describe_aarch64(Target& t, const llvm::StringMap<bool>&) {
  t.vector_bits = 128;
  t.library_bits = 128;
  t.strips = true;
}

}  // namespace

const Architecture& aarch64() {
  static const Architecture row{
      "aarch64-unknown-linux-gnu", initialise_aarch64,
      [](llvm::Module& m, const llvm::TargetMachine& machine, const Target& t) -> std::unique_ptr<CpuBuilder> {
        return std::make_unique<AArch64Builder>(m, machine, t);
      },
      describe_aarch64, aarch64_relocations()};
  return row;
}

}  // namespace cpu

Target neon_target() {
  Target t;
  t.architecture = Target::Architecture::AArch64;
  t.model = "generic";
  if (!includes(host_cpu(), CpuLevel::Neon)) t.unavailable = "this CPU does not run code for AArch64";
  cpu::describe_aarch64(t, {});
  return t;
}

}  // namespace braze::codegen
