// NVIDIA GPUs by way of Triton: the same nests as kernels in Triton's language, compiled by the user's triton package.

#include "base/build_id.h"
#include "base/check.h"
#include "codegen/codegen.h"
#include "codegen/disk_cache.h"
#include "codegen/distinct_kernels.h"
#include "codegen/kept.h"
#include "codegen/source.h"
#include "codegen/triton/compiler.h"
#include "codegen/triton/printer.h"

namespace braze::codegen {
namespace triton {
namespace {

Compiler& installed() {
  static Compiler c;
  return c;
}

std::string text_of(const Code& c) {
  return std::to_string(c.threads) + " " + std::to_string(c.shared) + "\n" + c.cubin;
}

Code code_from(const std::string& text) {
  Code c;
  size_t end = text.find('\n'), space = text.find(' ');
  BRAZE_CHECK(end != std::string::npos && space < end, "a cached Triton kernel without its launch");
  c.threads = static_cast<uint32_t>(std::stoul(text.substr(0, space)));
  c.shared = static_cast<uint32_t>(std::stoul(text.substr(space, end - space)));
  c.cubin = text.substr(end + 1);
  return c;
}

class TritonGenerator final : public CodeGenerator {
 public:
  explicit TritonGenerator(const Target& target) : target_(target) {}
  std::string_view name() const override { return "triton"; }
  std::string fingerprint() const override {
    return "triton " + build_id() + " " + (compiler().version ? compiler().version() : "") + " " + target_.text();
  }

  bool takes(const Program& program, const Nest& nest) const override {
    try {
      print(program, nest, "kernel");
      return true;
    } catch (const Inexpressible&) {
      return false;
    }
  }

  Compiled compile(const Program& program, const std::vector<Run>& runs, const Options& options) override {
    Compiled out;
    std::string print_key = fingerprint() + "\n";
    DistinctKernels distinct(out, print_key);
    std::optional<DiskCache> cache;
    if (options.disk_cache && !build_id().empty()) cache.emplace();
    for (const Run& run : runs)
      for (const Nest* nest : run) {
        Signature s = signature_of(program, *nest);
        CompiledKernel* k = distinct.add(s, s.key, choose_blocks(program, *nest, target_).grid);
        if (!k) continue;
        auto found = cache ? cache->find(k->symbol, print_key + s.key) : std::nullopt;
        Code code = found ? code_from(*found) : compile_one(program, *nest, k->symbol);
        if (cache && !found) cache->keep(k->symbol, print_key + s.key, text_of(code));
        k->threads = code.threads;
        k->shared = code.shared;
        out.blobs.push_back(std::move(code.cubin));
      }
    return out;
  }

  std::string source(const Program& program, const Run& run, const Options&) override {
    std::string text;
    for (const Nest* nest : run) {
      Blocks b = choose_blocks(program, *nest, target_);
      std::string facts = "grid " + program.arena->print(b.grid) + ", " + std::to_string(b.warps) + " warps";
      text +=
          (text.empty() ? "" : "\n") + head_comment(program, *nest, "#", facts) + print(program, *nest, "kernel").text;
    }
    return text;
  }

 private:
  Source print(const Program& program, const Nest& nest, const std::string& symbol) const {
    Blocks blocks = choose_blocks(program, nest, target_);
    Signature signature = signature_of(program, nest);
    Printer printer(program, nest, signature, blocks, target_.sm);
    Source s{printer.run(symbol), symbol, {}, blocks.warps, target_.sm};
    for (const Parameter& p : printer.parameters()) s.arguments.emplace_back(p.name, p.type);
    return s;
  }

  Code compile_one(const Program& program, const Nest& nest, const std::string& symbol) const {
    if (!compiler().compile)
      throw Unsupported(Reason::UnsupportedFeature, "options={'codegen': 'triton'} where no Python runs");
    return compiler().compile(print(program, nest, symbol));
  }

  const Target target_;
};

}  // namespace

void set_compiler(Compiler c) { installed() = std::move(c); }
const Compiler& compiler() { return installed(); }

}  // namespace triton

CodeGenerator& triton_generator(const Target& target) { return kept_generator<triton::TritonGenerator>(target); }

}  // namespace braze::codegen
