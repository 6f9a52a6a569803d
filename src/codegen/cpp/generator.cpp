// CPUs by way of the system's C++ compiler: the nests that LLVM compiles, printed for people to read.
#include <algorithm>
#include <thread>

#include "base/build_id.h"
#include "base/check.h"
#include "codegen/codegen.h"
#include "codegen/cpp/compiler.h"
#include "codegen/cpp/printer.h"
#include "codegen/cpu/library.h"
#include "codegen/cpu/machine.h"
#include "codegen/disk_cache.h"
#include "codegen/distinct_kernels.h"
#include "codegen/kept.h"
#include "codegen/source.h"
#include "codegen/workers.h"
#include "cpp_kernel_header.h"

namespace braze::codegen {
namespace cpp {
namespace {

class CppGenerator final : public CodeGenerator {
 public:
  explicit CppGenerator(const Target& target) : target_(target) {}
  std::string_view name() const override { return "cpp"; }
  std::string fingerprint() const override {
    return "cpp " + build_id() + " " + target_.text() + (target_.host ? cpu::host_text() : "") + " " + compiler_path() +
           " " + compiler_flags(target_) + " sleef " + std::to_string(cpu::library_symbols().size());
  }
  bool takes(const Program& program, const Nest& nest) const override {
    if (target_.architecture != Target::Architecture::X86_64 || target_.vector_bits < 256) return false;
    return !keeps_much(program, nest);
  }

  Compiled compile(const Program& program, const std::vector<Run>& runs, const Options& options) override {
    BRAZE_CHECK(target_.unavailable.empty(), target_.unavailable);
    Compiled out;
    std::string print = fingerprint() + "\n";
    DistinctKernels distinct(out, print);
    std::optional<DiskCache> cache;
    if (options.disk_cache && !build_id().empty()) cache.emplace();
    struct Missing {
      size_t kernel;
      std::string key, text, flags;
    };
    std::vector<Missing> missing;
    for (const Run& run : runs)
      for (const Nest* nest : run) {
        Signature s = signature_of(program, *nest);
        CompiledKernel* k = distinct.add(s, s.key, program.arena->constant(0));
        if (!k) continue;
        out.blobs.resize(out.kernels.size());
        std::string key = print + s.key;
        if (auto found = cache ? cache->find(k->symbol, key) : std::nullopt) {
          out.blobs.back() = std::move(*found);
          continue;
        }
        Printer printer(target_, program, *nest, s);
        std::string text = printer.run(k->symbol);
        missing.push_back({out.kernels.size() - 1, std::move(key), kHeader + library() + text,
                           compiler_flags(target_) + shape_flags(printer.shape())});
      }
    if (missing.empty()) return out;
    size_t cores = std::max(1u, std::thread::hardware_concurrency());
    Workers workers(std::min({missing.size() - 1, cores - 1, size_t{15}}));
    for (const Missing& m : missing)
      workers.push([&m, blob = &out.blobs[m.kernel]] { *blob = compile_text(m.text, m.flags); });
    workers.finish();
    if (cache)
      for (const Missing& m : missing) cache->keep(out.kernels[m.kernel].symbol, m.key, out.blobs[m.kernel]);
    return out;
  }

  std::string source(const Program& program, const Run& run, const Options&) override {
    std::string text;
    for (const Nest* nest : run) {
      Signature s = signature_of(program, *nest);
      Printer printer(target_, program, *nest, s);
      const Shape& shape = printer.shape();
      std::string facts =
          std::to_string(shape.lanes) + " lanes in a register, " + std::to_string(shape.group) + " in flight";
      text += (text.empty() ? "" : "\n") + head_comment(program, *nest, "//", facts) + printer.run("kernel");
    }
    return text;
  }

 private:
  static std::string shape_flags(const Shape& s) {
    return " -DBRAZE_LANES=" + std::to_string(s.lanes) + " -DBRAZE_MASK_BYTES=" + std::to_string(s.mask_bytes);
  }
  // The vector functions that this process has, as the header asks for them.
  std::string library() const {
    static constexpr const char* kNames[] = {"exp",   "exp2",  "expm1", "log",  "log2", "log10", "log1p", "sin",
                                             "cos",   "tan",   "asin",  "acos", "atan", "sinh",  "cosh",  "tanh",
                                             "asinh", "acosh", "atanh", "erf",  "erfc", "pow",   "atan2"};
    std::string text;
    for (std::string name : kNames)
      for (bool wide : {false, true}) {
        std::string two = name == "pow" || name == "atan2" ? "2" : "1", type = wide ? "Doubles" : "Floats";
        std::string sizes;
        for (int bits : {target_.vector_bits, 256}) {
          std::string symbol = cpu::library_symbol(name, wide, static_cast<unsigned>(bits / (wide ? 64 : 32)));
          if (symbol.empty()) continue;
          std::string bytes = std::to_string(bits / 8), size = wide ? "8" : "4";
          // The smallest that holds a leaf.
          std::string fits = bits == 256 ? "BRAZE_LANES * " + size + " <= 32" : "BRAZE_LANES * " + size + " > 32";
          if (bits == target_.vector_bits && bits == 256 && !sizes.empty()) continue;
          sizes += "#if " + fits + "\nBRAZE_VECTOR_FUNCTION" + two + "(" + name + ", " + type + ", " + bytes + ", " +
                   symbol + ")\n#endif\n";
        }
        text += sizes;
      }
    return text;
  }

  const Target target_;
};

}  // namespace
}  // namespace cpp

bool has_cpp_compiler() { return !cpp::compiler_path().empty(); }

CodeGenerator& cpp_generator(const Target& target) { return kept_generator<cpp::CppGenerator>(target); }

}  // namespace braze::codegen
