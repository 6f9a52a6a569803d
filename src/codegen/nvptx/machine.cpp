#include "codegen/nvptx/machine.h"

#include <map>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "codegen/llvm/headers.h"
#include "codegen/llvm/start.h"
#include "codegen/llvm/unit.h"

namespace braze::codegen::nvptx {
namespace {

void initialise() {
  ir::start_llvm();
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
}

struct Pool {
  std::mutex mutex;
  std::map<int, std::vector<std::unique_ptr<llvm::TargetMachine>>> idle;
};
Pool& pool() {
  static Pool* p = new Pool;  // outlives threads that still compile while the process ends
  return *p;
}

std::unique_ptr<llvm::TargetMachine> make_machine(int sm) {
  initialise();
  std::string error, triple = "nvptx64-nvidia-cuda";
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  BRAZE_CHECK(target, "LLVM has no target for " + triple + ": " + error);
  // PTX 7.8 is the first with sm_90; any driver since CUDA 11.8 reads it.
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(triple, architecture(sm), "+ptx78", llvm::TargetOptions(), std::nullopt, std::nullopt,
                                  llvm::CodeGenOptLevel::Default));
  BRAZE_CHECK(machine, "LLVM cannot make a machine for " + architecture(sm));
  return machine;
}

}  // namespace

std::string architecture(int sm) {
  constexpr int kKnown[] = {90, 89, 87, 86, 80, 75, 72, 70};
  for (int k : kKnown)
    if (sm >= k) return "sm_" + std::to_string(k);
  throw Unsupported(Reason::UnsupportedTensor, "a GPU of compute capability " + std::to_string(sm / 10) + "." +
                                                   std::to_string(sm % 10) +
                                                   " (7.0 is the oldest that kernels are written for)");
}

MachineLoan::MachineLoan(int sm) : sm_(sm) {
  {
    std::lock_guard lock(pool().mutex);
    auto& idle = pool().idle[sm];
    if (!idle.empty()) {
      machine_ = std::move(idle.back());
      idle.pop_back();
      return;
    }
  }
  machine_ = make_machine(sm);
}

MachineLoan::~MachineLoan() {
  std::lock_guard lock(pool().mutex);
  if (machine_) pool().idle[sm_].push_back(std::move(machine_));
}

std::string emit_ptx(llvm::Module& module, llvm::TargetMachine& machine) {
  ir::optimise(module, machine);
  llvm::SmallVector<char, 0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager emit;
  BRAZE_CHECK(
      !machine.addPassesToEmitFile(emit, stream, nullptr, llvm::CodeGenFileType::AssemblyFile, /*DisableVerify=*/true),
      "LLVM cannot print PTX");
  emit.run(module);
  return std::string(text.data(), text.size());
}

}  // namespace braze::codegen::nvptx
