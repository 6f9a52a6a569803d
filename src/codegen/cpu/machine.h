// LLVM's target machines for the host: made once, lent to one thread at a time, kept for the life of the process.
#pragma once
#include <memory>
#include <string>

#include "codegen/cpu/isa.h"

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace braze::codegen::cpu {

// The host, or the CPU that BRAZE_CPU forces (base/cpu.h).
const Isa& host();

// The same as text for keys, without LLVM's tables: its model and what it can do.
const std::string& host_text();

class MachineLoan {
 public:
  MachineLoan();
  ~MachineLoan();
  MachineLoan(const MachineLoan&) = delete;
  MachineLoan& operator=(const MachineLoan&) = delete;
  llvm::TargetMachine& operator*() const { return *machine_; }

 private:
  std::unique_ptr<llvm::TargetMachine> machine_;
};

// Runs the IR passes and emits a relocatable object. Throws InternalError.
std::string emit_object(llvm::Module& module, llvm::TargetMachine& machine);
// The same code as text.
std::string emit_assembly(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace braze::codegen::cpu
