// Extern steps of a plan, carried out through PyTorch (torch headers; only for extern*.cpp and runnable*.cpp).
#pragma once
#include <Python.h>

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "runtime/program.h"
#include "trace/convert.h"

namespace braze::launch {

// A plan's View with its expressions resolved to slots.
struct ViewSpec {
  ViewSpec() = default;
  ViewSpec(const runtime::Program& program, const loop::View& view);
  bool valid() const { return buffer != UINT32_MAX; }

  uint32_t buffer = UINT32_MAX;
  plan::Where where = plan::Where::Arena;
  c10::ScalarType dtype = c10::ScalarType::Float;
  c10::Device device{c10::kCPU};
  bool whole = false;  // the tensor that was handed in, or that the adopted call returned, as it is
  uint32_t input = 0;  // of an Input buffer
  std::vector<runtime::Slot> sizes, strides;
  runtime::Slot offset = 0;
};

// The values of a ViewSpec in one frame; valid for one generation of the frame.
struct Geometry {
  c10::SmallVector<int64_t, 5> sizes, strides;
  int64_t offset = 0;
  size_t bytes = 0;  // from the buffer's start to the end of the view
  void read(const ViewSpec& spec, const runtime::Frame& frame);
};

struct TorchFrame;
struct TuningTime;

// Whether others than the caller, who has one reference, hold the tensor or its memory. A Python object that only the
// tensor itself keeps alive, as it does once Python code has seen it, is none.
bool is_held_elsewhere(const at::Tensor&);

// A tensor over memory that someone else owns, kept between calls and retargeted when the memory moved.
class WrappedView {
 public:
  const at::Tensor& get(const ViewSpec& spec, const runtime::Frame& frame, const TorchFrame& call);
  // To be called when an operator that may have kept its argument returned: a tensor that outlives the call gets a copy
  // of its memory, and the wrapper forgets it.
  void let_go_if_kept();

 private:
  at::Tensor tensor_;
  void* data_ = nullptr;
  uint64_t generation_ = 0;
  size_t bytes_ = 0;
};

// State of one extern call in one frame.
struct CallFrame {
  std::vector<WrappedView> views, outputs;
};

// What the torch side keeps per frame of a program.
struct TorchFrame : runtime::HostState {
  std::vector<const at::Tensor*> inputs;               // this call's, one per graph input
  std::vector<at::Tensor> adopted;                     // per buffer: results of allocating calls
  std::vector<c10::Storage> storages;                  // per buffer: this call's Output buffers
  c10::DataPtr arena;                                  // on a GPU: this call's
  std::vector<CallFrame> calls;                        // per step of the plan
  std::unordered_map<uint32_t, at::Tensor> stand_ins;  // per buffer that had no elements: see stand_in
};

// Zeros for what kernels read of a tensor without elements: at most one before the first and one behind the last in
// each dimension. They stay with the frame, in `kept`: calls that follow each other often have the same empty tensors.
void* stand_in(at::Tensor& kept, c10::IntArrayRef sizes, c10::IntArrayRef strides, const at::TensorOptions& options);

class ExternCall {
 public:
  virtual ~ExternCall() = default;
  virtual void run(runtime::Frame& frame, TorchFrame& call, CallFrame& state) const = 0;
  virtual void forget_packed() {}
  virtual void keep_packed() {}
  // Whether it reads argument i in memory: not where that is packed.
  virtual bool reads(size_t i) const { return true; }
};

// Per step of the plan the call that it makes, nullptr of the others. `constants`: what OpaqueArg indexes. `frozen`: as
// CompiledGraph takes it. Throws InternalError for a call that does not fit the operator's schema.
std::vector<std::unique_ptr<ExternCall>> make_extern_calls(const runtime::Program& program,
                                                           const std::vector<PyObject*>& constants,
                                                           const std::vector<bool>& frozen);
// nullptr where there is no direct way: matrix products on dense CPU tensors. `time`: of all calls of the plan
// (launch/timed_ways.h).
std::unique_ptr<ExternCall> make_matmul_call(const runtime::Program& program, const plan::Extern& step,
                                             const std::shared_ptr<TuningTime>& time);
// Of _local_scalar_dense and _assert_scalar; nullptr for others.
std::unique_ptr<ExternCall> make_scalar_call(const runtime::Program& program, const plan::Extern& step);

// Whether the view's sizes depend on data.
bool defines_symbols(const sym::ExprArena& arena, const loop::View& view);
// Whether the operator asks for what the GPU has computed so far, or the library says that it cannot be recorded.
bool waits_for_gpu(const loop::ExternCall& call);

// Whether a tensor has the dtype, device type and number of dimensions of the view.
inline bool is_of_kind(const at::Tensor& t, const ViewSpec& spec) {
  return t.scalar_type() == spec.dtype && t.device().type() == spec.device.type() &&
         t.dim() == static_cast<int64_t>(spec.sizes.size());
}
// A tensor over `data`, which it does not own.
at::Tensor wrap_memory(void* data, const Geometry& geometry, c10::ScalarType dtype, c10::Device device);
at::Tensor tensor_on(c10::Storage storage, c10::IntArrayRef sizes, c10::IntArrayRef strides, int64_t offset,
                     c10::ScalarType dtype);
// In memory of its own, which begins where any kernel can read it; with what lies between its elements, if asked.
at::Tensor aligned_copy(const at::Tensor& t, bool with_gaps);

// Dispatch keys that a compiled region is below: autograd, autocast, function transforms, Python modes.
c10::DispatchKeySet keys_above_region();

// Runs fn(ctx, lo, hi) over [begin, end) on PyTorch's pool, in chunks of at least `grain`; inline when one chunk is
// enough.
void parallel_for(int64_t begin, int64_t end, int64_t grain, void (*fn)(void* ctx, int64_t lo, int64_t hi), void* ctx);
// Makes the generated kernels run there; once per process.
void install_parallel_for();

}  // namespace braze::launch
