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
#include "codegen/nvptx/machine.h"
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

  Compiled compile(const Program& program, const std::vector<const Nest*>& nests, const Options& options) override {
    Compiled out;
    std::string print = fingerprint() + "\n";
    DistinctKernels distinct(out, print);
    struct Wanted {
      std::string key;
      Signature signature;
      const Nest* nest;
      Shape shape;
    };
    std::vector<Wanted> kernels;
    for (const Nest* nest : nests) {
      Signature s = signature_of(program, *nest);
      Shape shape = choose_shape(program, *nest, target_);
      // Proofs of alignment do not show in the signature's text, but follow from it; the shape does not always.
      std::string key = s.key + "\nshape " + std::to_string(static_cast<int>(shape.way));
      for (int n : {shape.threads, shape.vector, shape.group, shape.copies, shape.most_copies, int{early(shape)}})
        key += " " + std::to_string(n);
      out.blocks_of.push_back(shape.blocks);
      CompiledKernel* k = distinct.add(s, key);
      if (!k) continue;
      k->threads = static_cast<uint32_t>(shape.threads);
      k->early = early(shape);
      kernels.push_back({std::move(key), std::move(s), nest, shape});
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
        auto unit = std::make_shared<ir::Unit>(
            emit(program, *kernels[i].nest, kernels[i].signature, kernels[i].shape, out.kernels[i].symbol));
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

  std::string source(const Program& program, const Nest& nest, const Options&) override {
    Signature s = signature_of(program, nest);
    Shape shape = choose_shape(program, nest, target_);
    ir::Unit u = emit(program, nest, s, shape, "kernel");
    MachineLoan machine(target_.sm);
    static constexpr const char* kWays[] = {"points", "tiles", "rows", "columns", "products", "windows"};
    std::string facts = std::string(kWays[static_cast<int>(shape.way)]) + ", " + std::to_string(shape.threads) +
                        " threads, vectors of " + std::to_string(shape.vector) + ", groups of " +
                        std::to_string(shape.group) + ", blocks " + program.arena->print(shape.blocks);
    return head_comment(program, nest, "//", facts) + emit_ptx(*u.module, *machine);
  }

 private:
  ir::Unit emit(const Program& program, const Nest& nest, const Signature& signature, const Shape& shape,
                const std::string& symbol) const {
    ir::Unit u = ir::make_unit(symbol, *MachineLoan(target_.sm));
    Emitter(program, nest, signature, shape, target_, early(shape), *u.module).run(symbol);
    ir::verify(*u.module, nest.name);
    return u;
  }

  bool early(const Shape& shape) const { return shape.early && target_.can_launch_early(); }

  const Target target_;
  std::string architecture_;
};

}  // namespace
}  // namespace nvptx

CodeGenerator& nvptx_generator(const Target& target) { return kept_generator<nvptx::NvptxGenerator>(target); }

}  // namespace braze::codegen
