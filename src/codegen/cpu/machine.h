// LLVM's target machines for CPUs: made once per target, lent to one thread at a time, kept for the life of the
// process.
#pragma once
#include <memory>
#include <string>

#include "base/target.h"

namespace llvm {
class Module;
class TargetMachine;
}  // namespace llvm

namespace braze::codegen::cpu {

// What the host can do beyond what its Target says, as text for keys, without LLVM's tables.
const std::string& host_text();

class MachineLoan {
 public:
  explicit MachineLoan(const Target& target);
  ~MachineLoan();
  MachineLoan(const MachineLoan&) = delete;
  MachineLoan& operator=(const MachineLoan&) = delete;
  llvm::TargetMachine& operator*() const { return *machine_; }

 private:
  std::string key_;
  std::unique_ptr<llvm::TargetMachine> machine_;
};

// Runs the IR passes and emits a relocatable object. Throws InternalError.
std::string emit_object(llvm::Module& module, llvm::TargetMachine& machine);
// The same code as text.
std::string emit_assembly(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace braze::codegen::cpu
