// What every LLVM target does with the module of one kernel, and how kernels are named.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "codegen/codegen.h"
#include "codegen/signature.h"

namespace llvm {
class LLVMContext;
class Module;
class TargetMachine;
}  // namespace llvm

namespace braze::codegen {

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

// The symbol of a kernel: a hash of 128 bits of what it is made for (`fingerprint`) and from (`key`).
std::string symbol_of(const std::string& fingerprint, const std::string& key);

// The kernels of one compilation: nests with equal keys share one.
class DistinctKernels {
 public:
  DistinctKernels(Compiled& out, std::string fingerprint) : out_(out), fingerprint_(std::move(fingerprint)) {}
  // Notes the next nest's arguments. Its kernel if it is the first of its key, named and without code, valid until the
  // next call; nullptr: an earlier nest's serves it.
  CompiledKernel* add(const Signature& signature, const std::string& key);

 private:
  Compiled& out_;
  std::string fingerprint_;
  std::unordered_map<std::string, uint32_t> by_key_;
};

}  // namespace braze::codegen
