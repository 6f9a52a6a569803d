// Values in machine code for a CPU: what its architecture has instructions of its own for is said by a class of that
// architecture (x86.cpp, aarch64.cpp); what a method here or in VectorBuilder does serves every CPU.
#pragma once
#include <memory>

#include "base/target.h"
#include "codegen/llvm/vector_builder.h"

namespace braze::codegen::cpu {

using llvm::Type;
using llvm::Value;

class CpuBuilder : public ir::VectorBuilder {
 public:
  CpuBuilder(llvm::Module& module, const llvm::TargetMachine& machine, const Target& target)
      : VectorBuilder(module), target(target), machine_(machine) {}
  const Target& target;

  // How instructions are to be chosen for `function`.
  virtual void set_attributes(llvm::Function& function);
  // Makes streaming stores (Target::streaming_stores) visible to other threads before what follows.
  virtual void fence_streams() {}
  // From SLEEF, where this process has it (library.h).
  Value* call_library(std::string_view name, llvm::ArrayRef<Value*> operands) override;

 private:
  const llvm::TargetMachine& machine_;
};

}  // namespace braze::codegen::cpu
