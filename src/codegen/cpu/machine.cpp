#include "codegen/cpu/machine.h"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/cpu.h"
#include "base/fork_mutex.h"
#include "codegen/llvm_headers.h"
#include "codegen/unit.h"

namespace braze::codegen::cpu {
namespace {

void initialise() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    // Loop strength reduction costs up to a third of the compile time; the emitter already keeps addresses in the form
    // [pointer + induction variable + constant].
    auto& options = llvm::cl::getRegisteredOptions();
    if (auto it = options.find("disable-lsr"); it != options.end()) it->second->addOccurrence(0, "disable-lsr", "true");
  });
}

const llvm::Target& host_target(const std::string& triple) {
  initialise();
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(triple, error);
  BRAZE_CHECK(target, "LLVM has no target for " + triple + ": " + error);
  return *target;
}

// Where the host differs from what LLVM knows about its model (a hypervisor may hide features). All hundred features
// would say the same, but are parsed anew for every machine and subtarget.
std::string host_features(const std::string& cpu) {
  std::string triple = llvm::sys::getProcessTriple(), text;
  std::unique_ptr<llvm::MCSubtargetInfo> model(host_target(triple).createMCSubtargetInfo(triple, cpu, ""));
  std::unordered_map<std::string_view, bool> usual;
  for (const llvm::SubtargetFeatureKV& f : model->getAllProcessorFeatures())
    usual[f.Key] = model->getFeatureBits()[f.Value];
  std::vector<std::string> differ;
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
    auto it = usual.find(feature.first());
    if (it == usual.end() || it->second != feature.second)
      differ.push_back((feature.second ? '+' : '-') + feature.first().str());
  }
  // Taking a feature away takes those that imply it, too: what the host has is said last.
  std::sort(differ.begin(), differ.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a[0] == '+', a) < std::pair(b[0] == '+', b);
  });
  for (const std::string& f : differ) text += (text.empty() ? "" : ",") + f;
  return text;
}

std::unique_ptr<llvm::TargetMachine> make_machine(const std::string& cpu, const std::string& features) {
  std::string triple = llvm::sys::getProcessTriple();
  const llvm::Target* target = &host_target(triple);
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(triple, cpu, features, llvm::TargetOptions(),
                                                                           llvm::Reloc::PIC_, llvm::CodeModel::Small,
                                                                           llvm::CodeGenOptLevel::Default, true));
  BRAZE_CHECK(machine, "LLVM cannot make a machine for " + cpu);
  return machine;
}

struct Pool {
  ForkMutex mutex;
  std::vector<std::unique_ptr<llvm::TargetMachine>> idle;
};
Pool& pool() {
  static Pool* p = new Pool;  // outlives threads that still compile while the process ends
  return *p;
}

std::optional<int64_t> host_cache() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  if (long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE); bytes > 0) return bytes;
#endif
  return std::nullopt;
}

// LLVM's model for the level that BRAZE_CPU forces; nullptr: the host as it is.
const char* forced_model() {
  auto level = forced_cpu();
  return !level ? nullptr : *level == CpuLevel::Avx512 ? "x86-64-v4" : "x86-64-v3";
}

// A forced CPU takes nothing from the host, so that its code is the same on every machine.
Isa detect() {
  Isa isa;
  if (const char* forced = forced_model()) {
    isa.cpu = forced;
    // Of the machines with AVX2 those of Intel's gather by an instruction.
    if (*forced_cpu() == CpuLevel::Avx2) isa.features = "+fast-gather";
  } else {
    isa.cpu = llvm::sys::getHostCPUName().str();
    isa.features = host_features(isa.cpu);
    isa.cache_bytes = host_cache().value_or(isa.cache_bytes);
  }
  auto machine = make_machine(isa.cpu, isa.features);
  const auto* info = machine->getMCSubtargetInfo();
  isa.avx2 = info->checkFeatures("+avx2,+fma,+f16c");
  isa.avx512 = isa.avx2 && info->checkFeatures("+avx512f,+avx512bw,+avx512dq,+avx512vl");
  isa.bits = isa.avx512 ? 512 : isa.avx2 ? 256 : 128;
  std::lock_guard lock(pool().mutex);
  pool().idle.push_back(std::move(machine));
  return isa;
}

}  // namespace

const Isa& host() {
  static const Isa isa = detect();
  return isa;
}

const std::string& host_text() {
  static const std::string text = [] {
    if (const char* forced = forced_model()) return std::string(forced);
    std::vector<std::string> has;
    for (const auto& feature : llvm::sys::getHostCPUFeatures())
      if (feature.second) has.push_back(feature.first().str());
    std::sort(has.begin(), has.end());
    std::string all = llvm::sys::getHostCPUName().str();
    for (const std::string& f : has) all += "," + f;
    all += "," + std::to_string(host_cache().value_or(0));
    return all;
  }();
  return text;
}

MachineLoan::MachineLoan() {
  const Isa& isa = host();
  {
    std::lock_guard lock(pool().mutex);
    if (!pool().idle.empty()) {
      machine_ = std::move(pool().idle.back());
      pool().idle.pop_back();
      return;
    }
  }
  machine_ = make_machine(isa.cpu, isa.features);
}

MachineLoan::~MachineLoan() {
  std::lock_guard lock(pool().mutex);
  pool().idle.push_back(std::move(machine_));
}

std::string emit_object(llvm::Module& module, llvm::TargetMachine& machine) {
  optimise(module, machine);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  llvm::MCContext* context = nullptr;
  BRAZE_CHECK(!machine.addPassesToEmitMC(passes, context, stream, /*DisableVerify=*/true), "LLVM cannot emit objects");
  passes.run(module);
  return std::string(bytes.data(), bytes.size());
}

std::string emit_assembly(llvm::Module& module, llvm::TargetMachine& machine) {
  optimise(module, machine);
  llvm::SmallVector<char, 0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  BRAZE_CHECK(!machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile),
              "LLVM cannot emit assembly");
  passes.run(module);
  return std::string(text.data(), text.size());
}

}  // namespace braze::codegen::cpu
