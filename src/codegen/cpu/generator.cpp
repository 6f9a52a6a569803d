// CPUs: keys, cache, emission on the calling thread, machine code on several.
#include <algorithm>
#include <thread>

#include "base/build_id.h"
#include "base/check.h"
#include "codegen/codegen.h"
#include "codegen/cpu/architecture.h"
#include "codegen/cpu/emitter.h"
#include "codegen/cpu/library.h"
#include "codegen/cpu/machine.h"
#include "codegen/disk_cache.h"
#include "codegen/distinct_kernels.h"
#include "codegen/kept.h"
#include "codegen/llvm/headers.h"
#include "codegen/llvm/unit.h"
#include "codegen/source.h"
#include "codegen/warm_up.h"
#include "codegen/workers.h"

namespace braze::codegen {
namespace cpu {
namespace {

class CpuGenerator final : public CodeGenerator {
 public:
  explicit CpuGenerator(Target target) : target_(std::move(target)) {}
  std::string_view name() const override { return "cpu"; }
  std::string fingerprint() const override {
    // Without LLVM's tables: where all kernels are found on disk, LLVM has nothing to do.
    return "cpu " + build_id() + " " + target_.text() + (target_.host ? host_text() : "") + " sleef " +
           std::to_string(library_symbols().size());
  }
  Compiled compile(const Program& program, const std::vector<Run>& runs, const Options& options) override;
  std::string source(const Program& program, const Run& run, const Options&) override {
    MachineLoan machine(target_);
    std::string text;
    for (const Nest* nest : run) {
      ir::Unit u = emit(program, *nest, signature_of(program, *nest), "kernel", *machine);
      text += (text.empty() ? "" : "\n") + head_comment(program, *nest, ";");
      llvm::raw_string_ostream stream(text);
      u.module->print(stream, nullptr);
    }
    return text;
  }
  std::string assembly(const Program& program, const Nest& nest) override {
    MachineLoan machine(target_);
    ir::Unit u = emit(program, nest, signature_of(program, nest), "kernel", *machine);
    return head_comment(program, nest, "#") + emit_assembly(*u.module, *machine);
  }

 private:
  ir::Unit emit(const Program& program, const Nest& nest, const Signature& signature, const std::string& symbol,
                llvm::TargetMachine& machine) const {
    ir::Unit u = ir::make_unit(symbol, machine);
    Emitter(program, nest, signature, architecture(target_.architecture).builder(*u.module, machine, target_))
        .run(symbol);
    ir::verify(*u.module, nest.name);
    return u;
  }

  const Target target_;
};

Compiled CpuGenerator::compile(const Program& program, const std::vector<Run>& runs, const Options& options) {
  BRAZE_CHECK(target_.unavailable.empty(), target_.unavailable);
  Compiled out;
  std::string print = fingerprint() + "\n";
  DistinctKernels distinct(out, print);
  std::vector<Signature> signatures;  // of distinct kernels
  std::vector<const Nest*> sources;
  for (const Run& run : runs)
    for (const Nest* nest : run) {
      Signature s = signature_of(program, *nest);
      if (!distinct.add(s, s.key, program.arena->constant(0))) continue;
      signatures.push_back(std::move(s));
      sources.push_back(nest);
    }
  out.blobs.resize(out.kernels.size());
  std::optional<DiskCache> cache;
  // Without a build-id objects of another build could not be told from ours.
  if (options.disk_cache && !build_id().empty()) cache.emplace();
  std::vector<size_t> missing;
  for (size_t i = 0; i < out.kernels.size(); ++i) {
    auto found = cache ? cache->find(out.kernels[i].symbol, print + signatures[i].key) : std::nullopt;
    if (found)
      out.blobs[i] = std::move(*found);
    else
      missing.push_back(i);
  }
  if (cache) note_programs(*cache);
  if (missing.empty()) return out;
  // The large ones first, so that no thread is left with one at the end.
  std::stable_sort(missing.begin(), missing.end(),
                   [&](size_t a, size_t b) { return signatures[a].key.size() > signatures[b].key.size(); });
  size_t cores = std::max(1u, std::thread::hardware_concurrency());
  Workers workers(std::min({missing.size() - 1, cores - 1, size_t{7}}));
  {
    MachineLoan machine(target_);
    for (size_t i : missing) {
      auto unit =
          std::make_shared<ir::Unit>(emit(program, *sources[i], signatures[i], out.kernels[i].symbol, *machine));
      workers.push([this, unit, blob = &out.blobs[i]] {
        MachineLoan own(target_);
        *blob = emit_object(*unit->module, *own);
      });
    }
  }
  workers.finish();
  if (cache)
    for (size_t i : missing) cache->keep(out.kernels[i].symbol, print + signatures[i].key, out.blobs[i]);
  return out;
}

}  // namespace
}  // namespace cpu

CodeGenerator& cpu_generator(const Target& target) { return kept_generator<cpu::CpuGenerator>(target); }

}  // namespace braze::codegen
