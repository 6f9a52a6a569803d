// A plan made ready to run: kernel addresses resolved, static sizes folded, arguments laid out. A call patches the
// pointers that changed and walks the steps.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "plan/plan.h"

namespace braze::runtime {

using KernelFn = void (*)(void* const* pointers, const int64_t* sizes);
using Slot = uint32_t;  // of an expression's value, see Program::slot

class Frame;

// A kernel that was launched before read or wrote past the end of a tensor.
class IndexOutOfRange : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What a Host keeps per Frame (wrappers of arena memory and the like).
struct HostState {
  virtual ~HostState() = default;
};

struct HostRange {
  virtual ~HostRange() = default;
};

// What a program needs from where it is embedded. One Host may serve many calls at once: per-call state belongs in the
// Frame's host_state.
class Host {
 public:
  virtual ~Host() = default;
  // Memory for Output buffer `buffer` of frame.bytes(buffer) bytes, 64-byte aligned; the host keeps it alive for this
  // call.
  virtual void* allocate(Frame& frame, uint32_t buffer) = 0;
  // Memory to read from in place of a buffer that has no elements in this call: kernels that show it as a part of
  // something larger read, and do not use, what is nearest. All zeros: an index that is read there is one.
  virtual void* stand_in(Frame& frame, uint32_t buffer) = 0;
  // Carries out the Extern step with this index into Plan::steps; for an allocating call, tells the frame the results'
  // addresses (set_pointer), and the sizes it found out (bind).
  virtual void call(Frame& frame, uint32_t step) = 0;
  // Before a GPU launch that belongs to a plan::Tuned: true if nothing is left of it to do.
  virtual bool replaces(Frame&, uint32_t) { return false; }
  // Whether a kernel of this call has found a fault (codegen::take_fault()).
  virtual bool found_fault() { return false; }
  // An Adopted buffer is dead.
  virtual void release(Frame& frame, uint32_t buffer) = 0;
  // For programs on a GPU: the stream that their kernels go to, and memory for the arena, 64-byte aligned, until the
  // call ends (what was enqueued by then may still use it).
  virtual void* stream(Device) { return nullptr; }
  virtual void* allocate_arena(Frame&, Device, size_t) { return nullptr; }
  // Whether ranges are wanted during this call; one for the launch of the kernel of that name, until it is dropped.
  virtual bool is_profiled() { return false; }
  virtual std::unique_ptr<HostRange> range(const std::string&) { return nullptr; }
};

class Program {
 public:
  // `kernels[i]` is the address of plan.kernels[i]; of a GPU kernel, its handle (see runtime/cuda). Unbacked symbols
  // that the plan mentions become bindable.
  Program(std::shared_ptr<const plan::Plan> plan, std::vector<KernelFn> kernels);
  ~Program();

  const plan::Plan& plan() const { return *plan_; }
  // Symbols that a call starts with, in the order of Plan::size_symbols.
  size_t symbols() const { return plan_->size_symbols.size(); }
  bool dynamic() const { return !symbols_.empty(); }

  // Where the value of an expression that occurs in the plan lies in a frame. Throws InternalError for any other.
  Slot slot(sym::Expr e) const;
  // Index for Frame::bind of an unbacked symbol of the plan.
  uint32_t symbol_index(sym::Expr symbol) const;

  // Frames are reused by calls that follow each other; calls that overlap get frames of their own.
  std::unique_ptr<Frame> acquire() const;
  void give_back(std::unique_ptr<Frame> frame) const;

  // Sizes and work of the coming call: to be called before run, with one value per size symbol.
  void prepare(Frame& frame, const int64_t* symbols) const;
  // inputs: one pointer per graph input. Throws what the host throws; the frame must then be dropped, not given back.
  // Where the host found a fault it may end early.
  void run(Frame& frame, Host& host, void* const* inputs) const;

 private:
  friend class Frame;
  enum class StepKind : uint8_t { Launch, GpuLaunch, Call, Allocate, Release };
  struct Step {
    StepKind kind;
    uint32_t index;  // Launch, Call: step of the plan; Allocate, Release: buffer
    KernelFn kernel;
    uint32_t pointers, sizes;                          // where the launch's arguments start
    uint32_t parameters = 0, threads = 0, shared = 0;  // GpuLaunch
    bool early = false;
    Slot blocks = 0;
    uint32_t gpu = 0;      // in gpus_
    bool tuned = false;    // GpuLaunch: the host is asked first
    bool commits = false;  // Launch: ends the run where a fault was found before
  };

  void evaluate(Frame& frame) const;
  void collect(sym::Expr e);
  void collect(const std::vector<sym::Expr>& es) {
    for (sym::Expr e : es) collect(e);
  }
  void collect(const loop::View& v);
  void collect_all();

  std::shared_ptr<const plan::Plan> plan_;
  std::vector<Step> steps_;
  std::vector<sym::Expr> symbols_;  // size symbols, then unbacked ones
  std::vector<sym::Expr> dynamic_exprs_, constant_exprs_;
  std::unordered_map<uint32_t, Slot> slots_;
  std::vector<int64_t> constants_;           // values of slots after the dynamic ones
  sym::IntProgram formulas_;                 // fills the dynamic slots
  std::vector<Slot> size_args_;              // slots of all launches' size arguments, in order
  std::vector<Slot> arena_offsets_, bytes_;  // per buffer
  Slot arena_bytes_ = 0;
  uint32_t pointer_args_ = 0, parameters_ = 0;
  std::vector<Device> gpus_;                 // that kernels run on
  void* gpu_error_ = nullptr;                // see codegen::CompiledKernel
  std::vector<uint32_t> use_starts_, uses_;  // per buffer: positions among all launches' pointer arguments
  std::vector<uint32_t> input_buffers_, output_buffers_, arena_buffers_;
  mutable std::atomic<Frame*> spare_{nullptr};
};

// The mutable half of a program: one call at a time.
class Frame {
 public:
  explicit Frame(const Program& program);

  void* pointer(uint32_t buffer) const { return pointers_[buffer]; }
  void set_pointer(uint32_t buffer, void* p) {
    pointers_[buffer] = p;
    for (uint32_t i = program_.use_starts_[buffer], end = program_.use_starts_[buffer + 1]; i < end; ++i)
      pointer_args_[program_.uses_[i]] = p;
  }
  int64_t value(Slot slot) const { return values_[slot]; }
  int64_t bytes(uint32_t buffer) const { return values_[program_.bytes_[buffer]]; }
  // The value of an unbacked symbol, from an extern call; the formulas are evaluated again when the call returns.
  void bind(uint32_t symbol, int64_t value);
  int64_t bound(uint32_t symbol) const { return symbol_values_[symbol]; }
  // Evaluates the formulas now, if a symbol got another value: for what the call itself reads of them.
  void refresh();
  // Changes whenever sizes or the arena's address did: what a host derived from them is then stale.
  uint64_t generation() const { return generation_; }
  // Bytes that the kernels of the call will read and write, roughly; -1 if it makes extern calls.
  int64_t work() const { return work_; }
  const Program& program() const { return program_; }

  std::unique_ptr<HostState> host_state;

 private:
  friend class Program;
  const Program& program_;
  std::vector<void*> pointers_;      // per buffer
  std::vector<void*> pointer_args_;  // of all launches, one after the other
  std::vector<int64_t> values_;      // dynamic slots, then constants
  std::vector<int64_t> symbol_values_;
  std::vector<int64_t> size_args_;
  std::vector<void*> parameters_;  // of all GPU launches: addresses of their arguments
  void *error_ = nullptr, *scratch_ = nullptr;
  std::byte* arena_base_ = nullptr;
  bool arena_placed_ = false;
  uint64_t generation_ = 1;
  int64_t work_ = 0;
  bool evaluated_ = false, rebound_ = false;
};

}  // namespace braze::runtime
