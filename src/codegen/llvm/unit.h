// What every generator through LLVM does with the module of one kernel.
#pragma once
#include <memory>
#include <string>

namespace llvm {
class LLVMContext;
class Module;
class TargetMachine;
}  // namespace llvm

namespace braze::codegen::ir {

// A module in a context of its own, so that threads can work on several.
struct Unit {
  Unit();
  Unit(Unit&&) noexcept;
  Unit& operator=(Unit&&) noexcept;
  ~Unit();
  std::unique_ptr<llvm::LLVMContext> context;
  std::unique_ptr<llvm::Module> module;
};

// An empty module with the machine's data layout and triple, as every module needs before IR is emitted into it.
Unit make_unit(const std::string& name, llvm::TargetMachine& machine);
// With BRAZE_STRICT or BRAZE_VERIFY set: throws InternalError with the IR if it is invalid. `nest`: what it was emitted
// for.
void verify(const llvm::Module& module, const std::string& nest);
// The passes that run before instruction selection: emitted code is in shape but for what is computed twice.
void optimise(llvm::Module& module, llvm::TargetMachine& machine);

}  // namespace braze::codegen::ir
