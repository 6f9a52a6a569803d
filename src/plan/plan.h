// The compiled artefact as data: what one call allocates, launches, calls and hands back. Serialisable; no pointers.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "loop/loop.h"  // View, ExternArg vocabulary
#include "symbolic/expr.h"

namespace braze::plan {

using sym::Expr;

enum class Where : uint8_t {
  Input,    // graph input `index` (its data pointer as handed in)
  Arena,    // inside the region's arena at `offset` bytes
  Output,   // freshly allocated for each call (an output's storage), or at its Allocate step
  Adopted,  // allocated by an extern call, released after its last use
};
std::string_view name(Where);

struct Buffer {
  std::string name;
  Where where = Where::Arena;
  DType dtype = DType::F32;
  Device device;
  uint32_t index = 0;                // Input: which graph input
  Expr offset;                       // Arena: bytes, 64-byte aligned
  Expr bytes;                        // size of the allocation
  std::vector<Expr> sizes, strides;  // elements
};

struct Launch {
  std::string name;               // of the nest, for people
  uint32_t kernel = 0;            // into Plan::kernels
  std::vector<uint32_t> buffers;  // pointer arguments in the kernel's order
  std::vector<Expr> sizes;        // int64 arguments after them
  Expr blocks;                    // GPU: how many blocks; none: nothing to do
  bool commits = false;           // loop::Nest
};

struct Extern {
  loop::ExternCall call;  // its BufferIds index Plan::buffers
};

// Storage for an Output buffer whose size is known only now (an extern call before it bound the symbols). Output
// buffers without an Allocate step are allocated before the first step.
struct Allocate {
  uint32_t buffer;
};

struct Release {  // an Adopted buffer, or one with an Allocate step, is dead
  uint32_t buffer;
};

using Step = std::variant<Launch, Extern, Allocate, Release>;

struct Kernel {
  std::string symbol;                // unique in `blob`
  uint32_t blob = 0;                 // into Plan::blobs
  uint32_t pointers = 0, sizes = 0;  // number of arguments
  Device device;                     // for a GPU: any of its index's architecture
  uint32_t threads = 0;              // GPU: per block
  uint32_t shared = 0;               // GPU: bytes of shared memory that a launch asks for
  bool early = false;                // GPU: may start while what precedes it still ends: it waits for that itself
};

// A kernel of a template, in Triton's language: compiled when somebody wants to time or launch it.
struct TemplateKernel {
  std::string label;                                           // for people
  std::string text, symbol;                                    // a Python module, the function in it
  std::vector<std::pair<std::string, std::string>> arguments;  // name and Triton's type
  int warps = 4, stages = 0, sm = 90;
  std::vector<uint32_t> buffers;  // pointer arguments; the error word follows
  uint32_t blocks = 1;
};

// A product with what surrounds it: steps that are carried out as they are (the library's way), or by one of some
// kernels in the place of the last of them. Which one is fastest is found out by timing them. What the kernels read
// stays as it is from the first of these steps to the last.
struct Tuned {
  std::vector<uint32_t> steps;  // launches of nests that make operands, the call, the launch of the nest that reads it
  uint32_t call = 0;            // which of them is the call
  std::vector<uint32_t> written;  // buffers that the kernels write; what else the steps write is then not needed
  std::string key;                // what is computed: those with equal keys are timed once
  double work = 0;                // multiplications
  int64_t points = 0;             // elements of the product
  std::vector<TemplateKernel> kernels;
};

struct Writeback : loop::Writeback {
  bool through = false;  // the buffer is the input's own memory: nothing is left to copy
};

struct Plan {
  std::shared_ptr<sym::ExprArena> arena;
  std::vector<Buffer> buffers;
  std::vector<Step> steps;
  std::vector<Kernel> kernels;
  std::vector<std::string> blobs;  // relocatable objects (CPU), PTX or cubin
  Expr arena_bytes;
  Device arena_device;                // where the arena's buffers live
  std::vector<loop::Output> outputs;  // BufferIds index Plan::buffers
  std::vector<Writeback> writebacks;
  std::vector<std::pair<Expr, std::pair<uint32_t, int32_t>>> size_symbols;
  uint32_t inputs = 0;
  std::vector<Tuned> tuned;  // each step belongs to at most one
  int64_t tuning_seconds = 0;
  bool keeps_choices = true;     // on disk
  std::string describe() const;  // readable listing
};

// Throws InternalError naming the rule and the step: ids in range, arguments as many as the kernel takes, Arena buffers
// inside the arena, Adopted buffers written by one extern call before they are read and not read after their Release,
// Input buffers never written but where a writeback says so.
void verify(const Plan&);

}  // namespace braze::plan
