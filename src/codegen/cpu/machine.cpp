#include "codegen/cpu/machine.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/cpu.h"
#include "base/fork_mutex.h"
#include "codegen/codegen.h"
#include "codegen/cpu/architecture.h"
#include "codegen/llvm/headers.h"
#include "codegen/llvm/start.h"
#include "codegen/llvm/unit.h"

namespace braze::codegen {
namespace cpu {
namespace {

void initialise(const Architecture& architecture) {
  ir::start_llvm();
  static auto* mutex = new ForkMutex;
  static auto* ready = new std::set<const Architecture*>;
  std::lock_guard lock(*mutex);
  if (!ready->insert(&architecture).second) return;
  architecture.initialise();
  // Loop strength reduction costs up to a third of the compile time; the emitter already keeps addresses in the form
  // [pointer + induction variable + constant].
  if (ready->size() > 1) return;
  auto& options = llvm::cl::getRegisteredOptions();
  if (auto it = options.find("disable-lsr"); it != options.end()) it->second->addOccurrence(0, "disable-lsr", "true");
}

std::string triple_of(const Target& target) {
  return target.architecture == kHostArchitecture ? llvm::sys::getProcessTriple()
                                                  : std::string(architecture(target.architecture).triple);
}

const llvm::Target& backend(const Target& target, const std::string& triple) {
  initialise(architecture(target.architecture));
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(triple, error);
  BRAZE_CHECK(found, "LLVM has no target for " + triple + ": " + error);
  return *found;
}

// What LLVM knows about a target's model.
std::unique_ptr<llvm::MCSubtargetInfo> model_of(const Target& target) {
  std::string triple = triple_of(target);
  return std::unique_ptr<llvm::MCSubtargetInfo>(
      backend(target, triple).createMCSubtargetInfo(triple, target.model, ""));
}

// Where the host differs from what LLVM knows about its model (a hypervisor may hide features). All hundred features
// would say the same, but are parsed anew for every machine and subtarget.
std::string host_features(const Target& host) {
  std::string text;
  const auto model = model_of(host);
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

std::unique_ptr<llvm::TargetMachine> make_machine(const Target& target) {
  std::string triple = triple_of(target), features = target.features;
  if (target.host) {
    static const std::string all = host_features(target);
    features = all;
  }
  std::unique_ptr<llvm::TargetMachine> machine(
      backend(target, triple)
          .createTargetMachine(triple, target.model, features, llvm::TargetOptions(), llvm::Reloc::PIC_,
                               llvm::CodeModel::Small, llvm::CodeGenOptLevel::Default, true));
  BRAZE_CHECK(machine, "LLVM cannot make a machine for " + target.model);
  return machine;
}

struct Pool {
  ForkMutex mutex;
  std::map<std::string, std::vector<std::unique_ptr<llvm::TargetMachine>>> idle;  // by the target's text
};
Pool& pool() {
  static Pool* p = new Pool;  // outlives threads that still compile while the process ends
  return *p;
}

// Of the last level, as much as one CPU can use: some CPUs have several of those, of which the C library gives the sum.
std::optional<int64_t> host_cache() {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index3/size");
  int64_t kilobytes = 0;
  if (char unit = 0; file >> kilobytes >> unit && unit == 'K' && kilobytes > 0) return kilobytes << 10;
#ifdef _SC_LEVEL3_CACHE_SIZE
  if (long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE); bytes > 0) return bytes;
#endif
  return std::nullopt;
}

Target describe_host() {
  Target t;
  t.architecture = kHostArchitecture;
  t.model = llvm::sys::getHostCPUName().str();
  t.host = true;
  t.cache_bytes = host_cache().value_or(t.cache_bytes);
  architecture(t.architecture).describe(t, llvm::sys::getHostCPUFeatures());
  // Some CPUs have the instruction, and load one by one in less time.
  if (t.gather && t.vector_bits < 512 && !model_of(t)->checkFeatures("+fast-gather")) t.gather = 0;
  return t;
}

}  // namespace

const std::string& host_text() {
  static const std::string text = [] {
    std::vector<std::string> has;
    for (const auto& feature : llvm::sys::getHostCPUFeatures())
      if (feature.second) has.push_back(feature.first().str());
    std::sort(has.begin(), has.end());
    std::string all;
    for (const std::string& f : has) all += "," + f;
    return all;
  }();
  return text;
}

MachineLoan::MachineLoan(const Target& target) : key_(target.text()) {
  {
    std::lock_guard lock(pool().mutex);
    auto& idle = pool().idle[key_];
    if (!idle.empty()) {
      machine_ = std::move(idle.back());
      idle.pop_back();
      return;
    }
  }
  machine_ = make_machine(target);
}

MachineLoan::~MachineLoan() {
  std::lock_guard lock(pool().mutex);
  if (machine_) pool().idle[key_].push_back(std::move(machine_));
}

std::string emit_object(llvm::Module& module, llvm::TargetMachine& machine) {
  ir::optimise(module, machine);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  llvm::MCContext* context = nullptr;
  BRAZE_CHECK(!machine.addPassesToEmitMC(passes, context, stream, /*DisableVerify=*/true), "LLVM cannot emit objects");
  passes.run(module);
  return std::string(bytes.data(), bytes.size());
}

std::string emit_assembly(llvm::Module& module, llvm::TargetMachine& machine) {
  ir::optimise(module, machine);
  llvm::SmallVector<char, 0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  BRAZE_CHECK(!machine.addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile),
              "LLVM cannot emit assembly");
  passes.run(module);
  return std::string(text.data(), text.size());
}

}  // namespace cpu

const Target& cpu_target() {
  static const Target target = [] {
    auto level = forced_cpu();
    Target t = !level ? cpu::describe_host() : *level == CpuLevel::Neon ? neon_target() : x86_target(*level);
    if (auto bytes = forced_cache()) t.cache_bytes = *bytes;
    if (!cpu_error().empty()) t.unavailable = cpu_error();
    return t;
  }();
  return target;
}

}  // namespace braze::codegen
