// LLVM's target machines for NVIDIA GPUs: made once per architecture, lent to one thread at a time.
#pragma once
#include <memory>
#include <string>

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace braze::codegen::nvptx {

// `sm`: compute capability, 90 for 9.0. Throws Unsupported for one that LLVM cannot write for: below 70.
class MachineLoan {
 public:
  explicit MachineLoan(int sm);
  ~MachineLoan();
  MachineLoan(const MachineLoan&) = delete;
  MachineLoan& operator=(const MachineLoan&) = delete;
  llvm::TargetMachine& operator*() const { return *machine_; }

 private:
  int sm_;
  std::unique_ptr<llvm::TargetMachine> machine_;
};

// The newest architecture that LLVM knows and a GPU of compute capability `sm` can run.
std::string architecture(int sm);
// Runs the IR passes and prints PTX. Throws InternalError.
std::string emit_ptx(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace braze::codegen::nvptx
