// The code generators' interface: nests in, machine code out.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "base/options.h"
#include "base/target.h"
#include "loop/loop.h"

namespace braze::codegen {

// A CPU kernel's C signature: void f(void* const* pointers, const int64_t* sizes). Pointers and sizes in the order
// given here. The kernel parallelises itself through the runtime's parallel_for. A GPU kernel takes the pointers and
// the sizes as parameters of their own, then a pointer to a 32-bit word of host memory, which it sets to 1 where an
// index was out of range. Pointers are aligned to 16 bytes. Two null pointers follow, for kernels that want scratch
// memory of some compilers' making.
struct CompiledKernel {
  std::string symbol;
  std::vector<loop::BufferId> buffers;  // pointer arguments
  std::vector<sym::Expr> sizes;         // int64 arguments (size symbols' values)
  uint32_t blob = 0;
  uint32_t threads = 0;  // GPU: per block; 0: a CPU kernel
  uint32_t shared = 0;   // GPU: bytes of shared memory that a launch asks for
  bool early = false;    // GPU: may start while what precedes it still ends: it waits for that itself
};

// Neighbours in a program that may be carried out at the same time, by one launch: none writes memory that another one
// touches (schedule/concurrent.h).
using Run = std::vector<const loop::Nest*>;
// Each nest by itself.
std::vector<Run> one_by_one(const std::vector<const loop::Nest*>& nests);

// How one or more nests are carried out.
struct Launch {
  uint32_t nests = 1;                   // how many: the next ones of those requested, all of one run
  uint32_t kernel = 0;                  // equal nests share one, their buffers differ
  std::vector<loop::BufferId> buffers;  // pointer arguments
  std::vector<sym::Expr> sizes;         // size arguments
  sym::Expr blocks;                     // GPU: how many blocks
};

struct Compiled {
  std::vector<CompiledKernel> kernels;  // one per distinct launch
  std::vector<Launch> launches;         // of the requested nests, in order
  std::vector<std::string> blobs;       // relocatable objects (CPU), cubin or PTX (GPU)
};

// For one target. Thread-safe; lives as long as the process.
class CodeGenerator {
 public:
  virtual ~CodeGenerator() = default;
  virtual std::string_view name() const = 0;
  // What cached code depends on besides the nests: version, the target and its instructions, pointer to nothing.
  virtual std::string fingerprint() const = 0;
  // Whether it can express the nest. One that it cannot is for another generator of the target, or is to be done
  // without private buffers.
  virtual bool takes(const loop::Program&, const loop::Nest&) const { return true; }
  virtual Compiled compile(const loop::Program& program, const std::vector<Run>& runs, const Options& options) = 0;
  // Source text of a run's kernels for people to read (LLVM IR, PTX, Triton, C++).
  virtual std::string source(const loop::Program& program, const Run& run, const Options& options) = 0;
  // The machine code of one nest as text, from a generator whose code is assembled in this process; else empty.
  virtual std::string assembly(const loop::Program&, const loop::Nest&) { return {}; }
};

// The CPU of this process, or the one that BRAZE_CPU names (base/cpu.h).
const Target& cpu_target();
// CPUs that are described, not looked at: their code is the same on every machine.
Target x86_target(CpuLevel level);  // Avx2, Avx512
Target neon_target();

// Through LLVM. `compile` throws InternalError where this process cannot run the target's code, the others give its
// text.
CodeGenerator& cpu_generator(const Target& target = cpu_target());

// The same CPU through the system's C++ compiler; it does not take every nest. `source` needs no compiler.
CodeGenerator& cpp_generator(const Target& target = cpu_target());
// Whether there is one: what CXX names, else c++, g++ or clang++ on PATH, as they are now.
bool has_cpp_compiler();

// An NVIDIA GPU through LLVM and nvJitLink. Throws Unsupported.
CodeGenerator& nvptx_generator(const Target& target);

// The same GPU through Triton (codegen/triton/compiler.h); it does not take every nest. `source` needs no triton
// package.
CodeGenerator& triton_generator(const Target& target);

// loop::device_of(); the CPU for a nest that stores nothing, but checks what is there.
Device device_of(const loop::Program& program, const loop::Nest& nest);

// Links a relocatable object into the process; symbol addresses stay valid for ever. Throws InternalError.
class Loader {
 public:
  virtual ~Loader() = default;
  virtual std::vector<void*> load(const std::string& object, const std::vector<std::string>& symbols) = 0;
};
Loader& cpu_loader();
// Tells the kernels how to run `fn(ctx, begin, end)` over [0, n) in chunks of at least `grain`, on PyTorch's pool.
using ParallelFor = void (*)(int64_t begin, int64_t end, int64_t grain, void (*fn)(void* ctx, int64_t lo, int64_t hi),
                             void* ctx);
// `threads`: how many it spreads chunks over, as this thread may use now.
void set_parallel_for(ParallelFor, int (*threads)());
int threads();

// What a kernel that this thread launched found wrong with the data (the first such find) since the last call; the
// results since then are worthless, though every access stayed inside its buffer. To be asked before results leave the
// region.
std::optional<loop::FaultReport> take_fault();
bool found_fault();  // one that take_fault() would give

}  // namespace braze::codegen
