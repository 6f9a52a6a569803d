// NVIDIA GPUs: keys, cache, emission on the calling thread, PTX and machine code on several; one module per
// kernel.
#include <algorithm>

#include "base/build_id.h"
#include "base/check.h"
#include "codegen/codegen.h"
#include "codegen/disk_cache.h"
#include "codegen/distinct_kernels.h"
#include "codegen/kept.h"
#include "codegen/llvm/headers.h"
#include "codegen/llvm/unit.h"
#include "codegen/nvptx/assembler.h"
#include "codegen/nvptx/emitter.h"
#include "codegen/nvptx/local_rows.h"
#include "codegen/nvptx/machine.h"
#include "codegen/nvptx/together.h"
#include "codegen/source.h"
#include "codegen/workers.h"

namespace braze::codegen {
namespace nvptx {
namespace {

class NvptxGenerator final : public CodeGenerator {
 public:
  explicit NvptxGenerator(const Target& target) : target_(target), architecture_(architecture(target.sm)) {}
  std::string_view name() const override { return "nvptx"; }
  std::string fingerprint() const override {
    return "nvptx " + build_id() + " " + architecture_ + " " + target_.text() + " " + assembler_name();
  }

  bool takes(const Program& program, const Nest& nest) const override {
    try {
      return fits_block(program, nest, choose_shape(program, nest, target_), target_);
    } catch (const Unsupported&) {
      return false;
    }
  }

  Compiled compile(const Program& program, const std::vector<Run>& runs, const Options& options) override {
    Compiled out;
    std::string print = fingerprint() + "\n";
    DistinctKernels distinct(out, print);
    struct Wanted {
      std::string key;
      std::vector<Part> parts;
    };
    std::vector<Wanted> kernels;
    for (const Run& run : runs)
      for (std::vector<Part>& parts : launches_of(program, run, target_)) {
        Signature all = signature_of(program, parts);
        CompiledKernel* k = distinct.add(all, all.key, blocks_of(program, parts), static_cast<uint32_t>(parts.size()));
        if (!k) continue;
        k->threads = static_cast<uint32_t>(parts.front().shape.threads);
        k->early = early(parts);
        kernels.push_back({std::move(all.key), std::move(parts)});
      }
    out.blobs.resize(out.kernels.size());
    std::optional<DiskCache> cache;
    // Without a build-id objects of another build could not be told from ours.
    if (options.disk_cache && !build_id().empty()) cache.emplace();
    std::vector<size_t> missing;
    for (size_t i = 0; i < kernels.size(); ++i) {
      auto found = cache ? cache->find(out.kernels[i].symbol, print + kernels[i].key) : std::nullopt;
      if (found)
        out.blobs[i] = std::move(*found);
      else
        missing.push_back(i);
    }
    if (missing.empty()) return out;
    size_t cores = std::max(1u, std::thread::hardware_concurrency());
    {
      Workers workers(std::min({missing.size() - 1, cores - 1, size_t{15}}));
      for (size_t i : missing) {
        auto unit = std::make_shared<ir::Unit>(emit(program, kernels[i].parts, out.kernels[i].symbol));
        workers.push([this, unit, blob = &out.blobs[i]] {
          MachineLoan machine(target_.sm);
          *blob = assemble(emit_ptx(*unit->module, *machine), architecture_);
        });
      }
      workers.finish();
    }
    if (cache)
      for (size_t i : missing) cache->keep(out.kernels[i].symbol, print + kernels[i].key, out.blobs[i]);
    return out;
  }

  std::string source(const Program& program, const Run& run, const Options&) override {
    static constexpr const char* kWays[] = {"points", "tiles", "rows", "columns", "products", "windows"};
    std::string text;
    for (const std::vector<Part>& parts : launches_of(program, run, target_)) {
      if (!text.empty()) text += "\n";
      for (const Part& p : parts) {
        std::string facts = std::string(kWays[static_cast<int>(p.shape.way)]) + ", " + std::to_string(p.shape.threads) +
                            " threads, vectors of " + std::to_string(p.shape.vector) + ", groups of " +
                            std::to_string(p.shape.group) + ", blocks " + program.arena->print(p.shape.blocks);
        text += head_comment(program, *p.nest, "//", facts);
      }
      ir::Unit u = emit(program, parts, "kernel");
      MachineLoan machine(target_.sm);
      text += emit_ptx(*u.module, *machine);
    }
    return text;
  }

 private:
  ir::Unit emit(const Program& program, const std::vector<Part>& parts, const std::string& symbol) const {
    ir::Unit u = ir::make_unit(symbol, *MachineLoan(target_.sm));
    emit_kernel(program, parts, target_, early(parts), symbol, *u.module);
    ir::verify(*u.module, parts.front().nest->name);
    return u;
  }

  // Of all nests of a launch, one after the other; the key tells the shapes, too.
  Signature signature_of(const Program& program, const std::vector<Part>& parts) const {
    Signature all;
    for (const Part& p : parts) {
      const Signature& s = p.signature;
      all.buffers.insert(all.buffers.end(), s.buffers.begin(), s.buffers.end());
      all.sizes.insert(all.sizes.end(), s.sizes.begin(), s.sizes.end());
      // Proofs of alignment do not show in the signature's text, but follow from it; the shape does not always.
      all.key +=
          (all.key.empty() ? "" : "\nbeside\n") + s.key + "\nshape " + std::to_string(static_cast<int>(p.shape.way));
      for (int n : {p.shape.threads, p.shape.vector, p.shape.group, p.shape.copies, p.shape.most_copies,
                    int{early(parts)}, int{p.ahead}})
        all.key += " " + std::to_string(n);
      if (parts.size() > 1) all.key += " blocks " + program.arena->print(p.shape.blocks);
    }
    return all;
  }

  Expr blocks_of(const Program& program, const std::vector<Part>& parts) const {
    Expr all = parts.front().shape.blocks;
    for (size_t i = 1; i < parts.size(); ++i) all = program.arena->add(all, parts[i].shape.blocks);
    return all;
  }

  bool early(const std::vector<Part>& parts) const {
    return target_.can_launch_early() &&
           std::all_of(parts.begin(), parts.end(), [](const Part& p) { return p.shape.early; });
  }

  const Target target_;
  std::string architecture_;
};

}  // namespace
}  // namespace nvptx

CodeGenerator& nvptx_generator(const Target& target) { return kept_generator<nvptx::NvptxGenerator>(target); }

}  // namespace braze::codegen
