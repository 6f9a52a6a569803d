#include "launch/compiled_graph.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include <ATen/ops/empty_strided.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "base/check.h"
#include "codegen/codegen.h"
#include "graph/copied_view.h"
#include "launch/extern.h"
#include "launch/gil.h"
#include "launch/internal_failure.h"
#include "launch/profile.h"
#include "launch/read_inputs.h"
#include "launch/tuned_product.h"
#include "launch/written_inputs.h"
#include "runtime/cuda/driver.h"
#include "runtime/pool.h"
#include "symbolic/given_symbol.h"
#include "trace/as_view_of.h"

namespace braze::launch {
namespace {

// Programs that touch fewer bytes than this keep the GIL: giving it up and taking it back costs as much as the work.
constexpr int64_t kGilBytes = 64 << 10;

struct InputCheck {
  uint32_t input;
  ViewSpec spec;  // sizes and strides of the plan's buffer
};

struct OutputSpec {
  loop::Output::Kind kind = loop::Output::Kind::None;
  ViewSpec view;
  uint32_t input = 0;
  int32_t same_as = -1;  // an earlier output that is the same value: the same object
  int32_t base = -1;     // an earlier output on the same storage: they share a version counter
};

struct WritebackSpec {
  uint32_t input = 0;
  ViewSpec from;
  bool snapshot = false;  // reads an input: copied before the first writeback
  bool through = false;   // the kernels wrote it
  uint32_t count = 1;     // of the version
};

// The state that a runnable adds to a frame.
struct RunFrame : TorchFrame {
  std::vector<const at::Tensor*> given;  // the caller's tensors; `inputs` holds copies of those with other strides
  // Where kernels may read copies that are aligned or on their device: what those are of, on whose memory outputs lie.
  std::vector<const at::Tensor*> shown;
  std::vector<void*> pointers;
  std::vector<int64_t> symbols;
  std::vector<at::Tensor> conformed;  // copies of inputs with other strides
  at::Tensor* owned = nullptr;        // of the call: inputs that it may drop
  std::vector<Geometry> outputs;
  std::vector<uint64_t> output_generations;
  std::vector<at::Tensor> results;
  std::vector<WrappedView> writebacks;
};

class TorchHost : public runtime::Host {
 public:
  TorchHost(const runtime::Program& program, const std::vector<PyObject*>& constants,
            const std::vector<runtime::KernelFn>& kernels, const std::vector<bool>& frozen)
      : calls_(make_extern_calls(program, constants, frozen)), tuned_(program, kernels) {}

  void forget_packed() {
    for (auto& c : calls_)
      if (c) c->forget_packed();
  }
  void keep_packed() {
    for (auto& c : calls_)
      if (c) c->keep_packed();
  }
  // Of the call that this step of the plan is.
  bool reads(size_t step, size_t argument) const { return !calls_[step] || calls_[step]->reads(argument); }

  void* allocate(runtime::Frame& frame, uint32_t buffer) override {
    size_t bytes = frame.bytes(buffer);
    c10::Device device = trace::torch_device(frame.program().plan().buffers[buffer].device);
    c10::Allocator* allocator = device.is_cpu() ? c10::GetCPUAllocator() : c10::GetAllocator(device.type());
    c10::DataPtr memory;
    if (!device.is_cpu()) {
      c10::DeviceGuard guard(device);
      memory = allocator->allocate(bytes);
    } else if (bytes < runtime::kPooledBytes) {
      memory = allocator->allocate(bytes);
    } else {
      void* block = runtime::pool_allocate(bytes);
      memory = c10::DataPtr(block, block, runtime::pool_free, c10::Device(c10::DeviceType::CPU));
    }
    c10::Storage storage =
        c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(memory), allocator,
                                              /*resizable=*/true);
    void* data = storage.mutable_data();
    state(frame).storages[buffer] = std::move(storage);
    return data;
  }
  void* stand_in(runtime::Frame& frame, uint32_t buffer) override {
    const runtime::Program& program = frame.program();
    const plan::Buffer& b = program.plan().buffers[buffer];
    c10::SmallVector<int64_t, 5> sizes, strides;
    for (sym::Expr e : b.sizes) sizes.push_back(frame.value(program.slot(e)));
    for (sym::Expr e : b.strides) strides.push_back(frame.value(program.slot(e)));
    return launch::stand_in(state(frame).stand_ins[buffer], sizes, strides,
                            at::TensorOptions(trace::torch_device(b.device)).dtype(trace::scalar_type(b.dtype)));
  }
  void call(runtime::Frame& frame, uint32_t step) override {
    RunFrame& tf = state(frame);
    if (!tuned_.replace(frame, tf, step, calls_)) calls_[step]->run(frame, tf, tf.calls[step]);
  }
  bool replaces(runtime::Frame& frame, uint32_t step) override {
    return tuned_.replace(frame, state(frame), step, calls_);
  }
  bool found_fault() override { return codegen::found_fault(); }
  void release(runtime::Frame& frame, uint32_t buffer) override {
    RunFrame& rf = state(frame);
    const plan::Buffer& b = frame.program().plan().buffers[buffer];
    if (b.where == plan::Where::Input) {
      if (!rf.owned) return;
      rf.owned[b.index] = at::Tensor();
      if (rf.inputs[b.index] != &rf.owned[b.index]) *const_cast<at::Tensor*>(rf.inputs[b.index]) = at::Tensor();
      return;
    }
    rf.adopted[buffer] = at::Tensor();
    rf.storages[buffer] = c10::Storage();
  }

  void* stream(Device device) override {
    c10::impl::VirtualGuardImpl guard(trace::torch_device(device).type());
    return guard.getStreamNativeHandle(guard.getStream(trace::torch_device(device)));
  }
  void* allocate_arena(runtime::Frame& frame, Device device, size_t bytes) override {
    TorchFrame& tf = state(frame);
    c10::DeviceGuard guard(trace::torch_device(device));
    tf.arena = c10::GetAllocator(trace::torch_device(device).type())->allocate(bytes);
    return tf.arena.get();
  }

  bool is_profiled() override { return launch::is_profiled(); }
  std::unique_ptr<runtime::HostRange> range(const std::string& kernel) override {
    return std::make_unique<KernelRange>("braze_fused_" + kernel);
  }

  static RunFrame& state(runtime::Frame& frame) { return static_cast<RunFrame&>(*frame.host_state); }

 private:
  std::vector<std::unique_ptr<ExternCall>> calls_;  // per step; nullptr for other steps
  TunedProducts tuned_;
};

}  // namespace

Constants::Constants(std::vector<PyObject*> owned) : objects_(std::move(owned)) {
  for (PyObject* o : objects_)
    if (o && THPVariable_Check(o)) tensors_.push_back(THPVariable_Unpack(o));
}

Constants::~Constants() {
  if (!Py_IsInitialized()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  for (PyObject* c : objects_) Py_XDECREF(c);
  PyGILState_Release(gil);
}

PyObject* internal_failure() {
  static PyObject* type = PyErr_NewExceptionWithDoc(
      "braze.InternalFailure", "An invariant of Braze's own broke in compiled code.", PyExc_RuntimeError, nullptr);
  return type;
}

void raise_internal_failure(const InternalError& e) {
  pybind11::gil_scoped_acquire gil;
  PyErr_SetString(internal_failure(), e.what());
  python_error error;
  error.persist();
  throw error;
}

class CompiledGraph::Impl {
 public:
  Impl(const graph::Graph& graph, driver::Artefact& made, std::shared_ptr<const Constants> constants, Aliases aliases,
       const std::vector<uint32_t>& write_counts, const std::vector<sym::Expr>& told, const std::vector<bool>& frozen)
      : constants_(std::move(constants)), aliases_(aliases) {
    install_parallel_for();
    static std::atomic<size_t> count{0};
    name_ = "## Call CompiledFxGraph " + std::to_string(count++) + " ##";
    auto plan = std::make_shared<const plan::Plan>(std::move(made.plan));
    std::vector<runtime::KernelFn> kernels = load(*plan);
    program_ = std::make_unique<runtime::Program>(plan, kernels);
    host_ = std::make_unique<TorchHost>(*program_, constants_->objects(), kernels, frozen);
    prepare_inputs(graph);
    prepare_outputs(graph);
    for (size_t i = 0; i < writebacks_.size() && i < write_counts.size(); ++i) writebacks_[i].count = write_counts[i];
    for (sym::Expr symbol : told) told_.push_back(program_->symbol_index(symbol));
  }

  const plan::Plan& plan() const { return program_->plan(); }
  void forget_packed() { host_->forget_packed(); }
  void keep_packed() { host_->keep_packed(); }
  std::vector<bool> reads_in_memory() const {
    return launch::reads_in_memory(plan(), inputs_, [this](size_t step, size_t k) { return host_->reads(step, k); });
  }
  size_t inputs() const { return inputs_; }
  size_t outputs() const { return outputs_.size(); }

  void run(Call& call) const {
    std::unique_ptr<runtime::Frame> frame = program_->acquire();
    if (!frame->host_state) frame->host_state = new_state();
    RunFrame& rf = static_cast<RunFrame&>(*frame->host_state);
    ProfilerRange range(name_);
    // A frame whose call failed midway is dropped with all it holds.
    try {
      run_in(*frame, rf, call);
    } catch (const runtime::IndexOutOfRange& e) {
      TORCH_CHECK_INDEX((note_not_again(true), false), e.what());
    } catch (const InternalError& e) {
      raise_internal_failure(e);
    }
    program_->give_back(std::move(frame));
  }

  ReplayFacts replay_facts() const {
    ReplayFacts f;
    const plan::Plan& plan = program_->plan();
    if (!gpu_) f.why_not = "nothing of the region runs on a GPU";
    for (const plan::Buffer& b : plan.buffers)
      if (b.device.type != DeviceType::CUDA) f.why_not = "the region reads or writes memory of the CPU";
    for (const plan::Step& s : plan.steps) {
      auto* call = std::get_if<plan::Extern>(&s);
      if (call && waits_for_gpu(call->call))
        f.why_not = "an operator in the region waits for the GPU: " + call->call.name;
      auto* a = std::get_if<plan::Allocate>(&s);
      if ((a && plan.arena->depends_on_data(plan.buffers[a->buffer].bytes)) ||
          (call && std::ranges::any_of(call->call.outputs,
                                       [&](const loop::View& v) { return defines_symbols(*plan.arena, v); })))
        f.why_not = "a size in the region depends on data";
    }
    f.outputs = plan.outputs.size();
    for (const loop::Output& o : plan.outputs) {
      bool back = o.kind == loop::Output::Kind::Input;
      if (back && aliases_ == Aliases::Fresh) f.why_not = "the region returns one of its inputs";
      f.handed_back.push_back(back ? static_cast<int32_t>(o.input) : -1);
    }
    for (const loop::Writeback& w : plan.writebacks) f.written.push_back(w.input);
    return f;
  }

 private:
  static std::vector<runtime::KernelFn> load(const plan::Plan& plan) {
    std::vector<runtime::KernelFn> kernels(plan.kernels.size());
    for (size_t blob = 0; blob < plan.blobs.size(); ++blob) {
      std::vector<std::string> symbols;
      std::vector<size_t> which;
      for (size_t k = 0; k < kernels.size(); ++k)
        if (plan.kernels[k].blob == blob) symbols.push_back(plan.kernels[k].symbol), which.push_back(k);
      if (symbols.empty()) continue;
      if (plan.kernels[which[0]].threads) {
        for (size_t i : which) {
          const plan::Kernel& k = plan.kernels[i];
          kernels[i] = reinterpret_cast<runtime::KernelFn>(
              runtime::cuda::load(plan.blobs[blob], k.symbol, k.shared, std::max<int>(0, k.device.index)));
        }
        continue;
      }
      std::vector<void*> addresses = codegen::cpu_loader().load(plan.blobs[blob], symbols);
      for (size_t i = 0; i < which.size(); ++i) kernels[which[i]] = reinterpret_cast<runtime::KernelFn>(addresses[i]);
    }
    return kernels;
  }

  void prepare_inputs(const graph::Graph& graph) {
    const plan::Plan& plan = program_->plan();
    size_t constant = 0;
    for (uint32_t i = 0; i < graph.inputs.size(); ++i) {
      if (graph.inputs[i].kind != graph::InputKind::Constant) continue;
      BRAZE_CHECK(constant < constants_->tensors().size(), "a constant that the capture did not keep");
      constant_inputs_.push_back({i, &constants_->tensors()[constant++]});
    }
    inputs_ = graph.inputs.size();
    std::vector<bool> through(plan.buffers.size());  // they look as the input, which is checked
    for (const plan::Writeback& w : plan.writebacks) through[w.from.buffer.index] = w.through;
    for (uint32_t b = 0; b < plan.buffers.size(); ++b) {
      const plan::Buffer& buffer = plan.buffers[b];
      if (buffer.where != plan::Where::Input || through[b]) continue;
      if (graph.inputs[buffer.index].kind == graph::InputKind::Argument) checks_.push_back({buffer.index, whole(b)});
    }
    for (const auto& s : plan.size_symbols) symbol_origins_.push_back(s.second);
    shows_gaps_.resize(inputs_);
    for (const graph::Node& n : graph.nodes()) {
      if (n.op != graph::Op::as_strided) continue;
      const graph::ValueId root = graph::memory_root(graph, std::get<graph::ValueId>(n.args[0]));
      for (size_t i = 0; i < inputs_; ++i) shows_gaps_[i] = shows_gaps_[i] || graph.inputs[i].value == root;
    }
    prepare_gpu();
  }

  // Kernels on a GPU read vectors of 16 bytes, and no memory of the host but for numbers, which are copied there.
  void prepare_gpu() {
    const plan::Plan& plan = program_->plan();
    std::vector<char> on_gpu(inputs_), on_cpu(inputs_);
    bool several = false;  // GPUs
    for (const plan::Step& s : plan.steps) {
      auto* l = std::get_if<plan::Launch>(&s);
      if (!l) continue;
      const plan::Kernel& k = plan.kernels[l->kernel];
      if (k.threads) {
        several = several || (gpu_ && *gpu_ != trace::torch_device(k.device));
        gpu_ = trace::torch_device(k.device);
      }
      for (uint32_t b : l->buffers) {
        const plan::Buffer& buffer = plan.buffers[b];
        if (buffer.where == plan::Where::Input) (k.threads ? on_gpu : on_cpu)[buffer.index] = 1;
        bool foreign = buffer.device.type != k.device.type || (k.threads && buffer.device.index != k.device.index);
        if (foreign && !(k.threads && buffer.where == plan::Where::Input && buffer.device.type == DeviceType::CPU))
          throw Unsupported(Reason::UnsupportedTensor, "a kernel on one device that reads memory of another");
        if (foreign && std::find(uploads_.begin(), uploads_.end(), buffer.index) == uploads_.end())
          uploads_.push_back(buffer.index);
      }
    }
    for (uint32_t i : uploads_)
      if (on_cpu[i] || several)
        throw Unsupported(Reason::UnsupportedTensor, "a CPU tensor that kernels on two devices read");
    for (uint32_t i = 0; i < inputs_; ++i)
      if (on_gpu[i]) aligned_.push_back(i);
    for (const plan::Buffer& b : plan.buffers)
      if (!gpu_ && b.device.type == DeviceType::CUDA) gpu_ = trace::torch_device(b.device);
  }

  // The sizes and strides of a whole buffer.
  ViewSpec whole(uint32_t buffer) const {
    const plan::Buffer& b = program_->plan().buffers[buffer];
    ViewSpec spec;
    spec.buffer = buffer;
    spec.dtype = trace::scalar_type(b.dtype);
    for (sym::Expr e : b.sizes) spec.sizes.push_back(program_->slot(e));
    for (sym::Expr e : b.strides) spec.strides.push_back(program_->slot(e));
    return spec;
  }

  void prepare_outputs(const graph::Graph& graph) {
    const plan::Plan& plan = program_->plan();
    for (const plan::Writeback& w : plan.writebacks) {
      writebacks_.push_back({w.input, ViewSpec(*program_, w.from), false, w.through});
      writebacks_.back().snapshot = writebacks_.back().from.where == plan::Where::Input && !w.through;
    }
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      const loop::Output& o = plan.outputs[i];
      OutputSpec spec;
      spec.kind = o.kind;
      spec.input = o.input;
      if (o.kind == loop::Output::Kind::View) spec.view = ViewSpec(*program_, o.view);
      for (size_t j = 0; j < i && spec.same_as < 0; ++j) {
        const loop::Output& p = plan.outputs[j];
        // Values that the graph keeps apart are tensors of their own, even where they share memory.
        if (p.kind != o.kind || o.kind != loop::Output::Kind::View || p.view.buffer != o.view.buffer) continue;
        if (spec.base < 0) spec.base = j;
        if (graph.outputs[j] == graph.outputs[i]) spec.same_as = j;
      }
      outputs_.push_back(std::move(spec));
    }
  }

  std::unique_ptr<runtime::HostState> new_state() const {
    auto rf = std::make_unique<RunFrame>();
    const plan::Plan& plan = program_->plan();
    rf->inputs.resize(inputs_);
    rf->given.resize(inputs_);
    rf->pointers.resize(inputs_);
    rf->symbols.resize(symbol_origins_.size());
    rf->adopted.resize(plan.buffers.size());
    rf->storages.resize(plan.buffers.size());
    rf->calls.resize(plan.steps.size());
    rf->outputs.resize(outputs_.size());
    rf->output_generations.resize(outputs_.size());
    rf->results.resize(outputs_.size());
    rf->writebacks.resize(writebacks_.size());
    return rf;
  }

  void run_in(runtime::Frame& frame, RunFrame& rf, Call& call) const {
    c10::OptionalDeviceGuard device(gpu_);
    // Below autograd and what is above it, as the recorded calls were.
    c10::impl::ExcludeDispatchKeyGuard below(keys_above_region());
    take_inputs(frame, rf, call);
    int64_t work = frame.work();
    {
      GilRelease others_go_on(call.holds_gil && (work < 0 || work > kGilBytes));
      codegen::take_fault();  // of a call that another exception ended
      program_->run(frame, *host_, rf.pointers.data());
      if (auto fault = codegen::take_fault()) raise(*fault);
      finish(frame, rf);
    }
    for (uint32_t symbol : told_) call.told.push_back(frame.bound(symbol));
    call.results.resize(outputs_.size());
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const OutputSpec& o = outputs_[i];
      call.results[i] = o.same_as >= 0 ? call.results[o.same_as] : std::move(rf.results[i]);
    }
    for (size_t i = 0; i < program_->plan().buffers.size(); ++i) {
      rf.adopted[i] = at::Tensor();
      rf.storages[i] = c10::Storage();
    }
    rf.conformed.clear();
    rf.arena.clear();
  }

  [[noreturn]] static void raise(const loop::FaultReport& fault) {
    if (fault.exception() == loop::FaultReport::Exception::IndexError) TORCH_CHECK_INDEX(false, fault.message());
    TORCH_CHECK(false, fault.message());
    std::abort();
  }

  void take_inputs(runtime::Frame& frame, RunFrame& rf, Call& call) const {
    BRAZE_CHECK(call.inputs.size() == inputs_,
                "the graph has " + std::to_string(inputs_) + " inputs, got " + std::to_string(call.inputs.size()));
    rf.inputs.assign(call.inputs.begin(), call.inputs.end());
    rf.owned = call.owned;
    for (const auto& [input, tensor] : constant_inputs_)
      if (!rf.inputs[input]) rf.inputs[input] = tensor;
    if (call.symbols) std::copy(call.symbols, call.symbols + symbol_origins_.size(), rf.symbols.begin());
    for (size_t i = 0; !call.symbols && i < symbol_origins_.size(); ++i) {
      const auto [input, d] = symbol_origins_[i];
      BRAZE_CHECK(input != sym::kGivenSymbol, "a size symbol's value is to be given");
      rf.symbols[i] = d >= 0 ? rf.inputs[input]->size(d) : rf.inputs[input]->stride(~d);
    }
    program_->prepare(frame, rf.symbols.data());
    rf.given = rf.inputs;
    if (copies()) rf.conformed.reserve(2 * inputs_);  // addresses must stay
    for (const InputCheck& c : checks_) conform(c, frame, rf);
    if (copies()) rf.shown = rf.inputs;
    for (uint32_t i : uploads_) replace(rf, i, rf.inputs[i]->to(*gpu_));
    for (uint32_t i : aligned_)
      if (reinterpret_cast<uintptr_t>(rf.inputs[i]->const_data_ptr()) % 16)
        replace(rf, i, aligned_copy(*rf.inputs[i], shows_gaps_[i]));
    for (size_t i = 0; i < inputs_; ++i) {
      rf.pointers[i] = const_cast<void*>(rf.inputs[i]->const_data_ptr());
      if (!rf.inputs[i]->numel()) [[unlikely]]
        rf.pointers[i] = stand_in_for_input(frame, rf, i);
    }
    for (const WritebackSpec& w : writebacks_) {
      TORCH_CHECK(!rf.given[w.input]->is_inference() || c10::InferenceMode::is_enabled(),
                  "Inplace update to inference tensor outside InferenceMode is not allowed.");
      if (w.through) rf.pointers[w.input] = rf.inputs[w.input]->mutable_data_ptr();
    }
  }

  bool copies() const { return !uploads_.empty() || !aligned_.empty(); }

  static void* stand_in_for_input(const runtime::Frame& frame, RunFrame& rf, size_t input) {
    const at::Tensor& t = *rf.inputs[input];
    const auto buffer = buffer_of(frame.program().plan(), input);
    return buffer ? stand_in(rf.stand_ins[*buffer], t.sizes(), t.strides(), t.options()) : nullptr;
  }

  void replace(RunFrame& rf, uint32_t input, at::Tensor by) const {
    rf.conformed.push_back(std::move(by));
    rf.inputs[input] = &rf.conformed.back();
  }

  // Tangents and saved values come from outside the guards: their strides may differ from the recorded ones.
  void conform(const InputCheck& c, const runtime::Frame& frame, RunFrame& rf) const {
    const at::Tensor& t = *rf.inputs[c.input];
    const ViewSpec& spec = c.spec;
    c10::IntArrayRef sizes = t.sizes(), strides = t.strides();
    bool fits = t.scalar_type() == spec.dtype && sizes.size() == spec.sizes.size();
    bool dense = true;
    for (size_t d = 0; fits && d < sizes.size(); ++d) {
      fits = sizes[d] == frame.value(spec.sizes[d]);
      dense &= strides[d] == frame.value(spec.strides[d]) || sizes[d] == 1;
    }
    BRAZE_CHECK(fits,
                "input " + std::to_string(c.input) + " has another dtype or size than the graph was compiled for");
    if ((dense || t.numel() == 0) && !t.is_conj() && !t.is_neg()) return;
    Geometry g;
    g.strides.resize(sizes.size());
    for (size_t d = 0; d < sizes.size(); ++d) g.strides[d] = frame.value(spec.strides[d]);
    c10::impl::ExcludeDispatchKeyGuard below(keys_above_region());
    at::Tensor copy = at::empty_strided(sizes, g.strides, t.options());
    copy.copy_(t);
    if (rf.conformed.empty()) rf.conformed.reserve(2 * inputs_);  // addresses must stay
    replace(rf, c.input, std::move(copy));
  }

  // Output tensors, then writebacks. An output on an input's memory is an alias: it shows what a writeback puts there.
  void finish(runtime::Frame& frame, RunFrame& rf) const {
    for (size_t i = 0; i < outputs_.size(); ++i) rf.results[i] = output(i, frame, rf);
    if (writebacks_.empty()) return;
    note_not_again(true);
    c10::SmallVector<at::Tensor, 4> from;
    for (size_t i = 0; i < writebacks_.size(); ++i) {
      from.emplace_back();
      if (writebacks_[i].through) continue;
      const at::Tensor& t = rf.writebacks[i].get(writebacks_[i].from, frame, rf);
      from.back() = writebacks_[i].snapshot ? t.clone() : t;
    }
    for (size_t i = 0; i < writebacks_.size(); ++i) {
      const at::Tensor& input = *rf.given[writebacks_[i].input];
      const at::Tensor* written = writebacks_[i].through ? rf.inputs[writebacks_[i].input] : &from[i];
      // Written through, it is the caller's tensor, or a copy of it that fits the kernels.
      if (written != &input) input.copy_(*written);
      for (uint32_t n = input.is_inference() ? 0 : writebacks_[i].count; n > 0; --n)
        input.unsafeGetTensorImpl()->bump_version();
    }
  }

  at::Tensor output(size_t i, const runtime::Frame& frame, RunFrame& rf) const {
    const OutputSpec& o = outputs_[i];
    if (o.kind == loop::Output::Kind::None || o.same_as >= 0) return {};
    if (o.kind == loop::Output::Kind::Input) {
      const at::Tensor& t = *rf.given[o.input];
      if (aliases_ == Aliases::Shared) return t;
      return on_memory_of(t, t.sizes(), t.strides(), t.storage_offset(), t.scalar_type());
    }
    at::Tensor t = view_output(i, frame, rf);
    bool partly = o.base >= 0 || o.view.where == plan::Where::Input;
    return aliases_ == Aliases::Shared && partly ? t.clone() : t;
  }

  at::Tensor view_output(size_t i, const runtime::Frame& frame, RunFrame& rf) const {
    const OutputSpec& o = outputs_[i];
    const ViewSpec& spec = o.view;
    Geometry& g = rf.outputs[i];
    if (rf.output_generations[i] != frame.generation()) {
      g.read(spec, frame);
      rf.output_generations[i] = frame.generation();
    }
    if (spec.where == plan::Where::Output) {
      at::Tensor t = tensor_on(rf.storages[spec.buffer], g.sizes, g.strides, g.offset, spec.dtype);
      return o.base >= 0 ? with_version_of(rf.results[o.base], std::move(t)) : t;
    }
    const at::Tensor& owner =
        spec.where == plan::Where::Input ? *(copies() ? rf.shown : rf.inputs)[spec.input] : rf.adopted[spec.buffer];
    BRAZE_CHECK(spec.where != plan::Where::Arena && owner.defined(), "an output on memory that is gone");
    if (spec.whole && !is_of_kind(owner, spec)) return owner;
    if (spec.where == plan::Where::Adopted && o.base < 0 && g.offset == 0 &&
        owner.sizes() == c10::IntArrayRef(g.sizes) && owner.strides() == c10::IntArrayRef(g.strides) &&
        owner.scalar_type() == spec.dtype)
      return owner;
    int64_t start = owner.storage_offset() * static_cast<int64_t>(owner.itemsize()) /
                    static_cast<int64_t>(c10::elementSize(spec.dtype));
    return on_memory_of(owner, g.sizes, g.strides, start + g.offset, spec.dtype);
  }

  static at::Tensor on_memory_of(const at::Tensor& owner, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                                 int64_t offset, c10::ScalarType dtype) {
    trace::AsViewOf kind(owner);
    return with_version_of(owner, tensor_on(owner.storage(), sizes, strides, offset, dtype));
  }

  static at::Tensor with_version_of(const at::Tensor& base, at::Tensor view) {
    if (!base.is_inference() && !view.is_inference())
      view.unsafeGetTensorImpl()->set_version_counter(base.unsafeGetTensorImpl()->version_counter());
    return view;
  }

  std::shared_ptr<const Constants> constants_;
  Aliases aliases_;
  std::string name_;  // in profiles
  std::unique_ptr<runtime::Program> program_;
  std::unique_ptr<TorchHost> host_;
  size_t inputs_ = 0;
  std::vector<std::pair<uint32_t, const at::Tensor*>> constant_inputs_;
  std::vector<InputCheck> checks_;
  std::optional<c10::Device> gpu_;
  std::vector<bool> shows_gaps_;             // inputs: what lies between their elements is read
  std::vector<uint32_t> uploads_, aligned_;  // inputs: on the CPU for kernels on the GPU; read by those
  std::vector<std::pair<uint32_t, int32_t>> symbol_origins_;
  std::vector<OutputSpec> outputs_;
  std::vector<WritebackSpec> writebacks_;
  std::vector<uint32_t> told_;  // symbols of the program
};

CompiledGraph::CompiledGraph(const graph::Graph& graph, driver::Artefact& made,
                             std::shared_ptr<const Constants> constants, Aliases aliases,
                             std::vector<uint32_t> write_counts, const std::vector<sym::Expr>& told,
                             const std::vector<bool>& frozen)
    : impl_(std::make_unique<Impl>(graph, made, std::move(constants), aliases, write_counts, told, frozen)) {}
CompiledGraph::~CompiledGraph() = default;
void CompiledGraph::run(Call& call) const { impl_->run(call); }
void CompiledGraph::forget_packed() { impl_->forget_packed(); }
void CompiledGraph::keep_packed() { impl_->keep_packed(); }
std::vector<bool> CompiledGraph::reads_in_memory() const { return impl_->reads_in_memory(); }
size_t CompiledGraph::inputs() const { return impl_->inputs(); }
size_t CompiledGraph::outputs() const { return impl_->outputs(); }
const plan::Plan& CompiledGraph::plan() const { return impl_->plan(); }
ReplayFacts CompiledGraph::replay_facts() const { return impl_->replay_facts(); }

}  // namespace braze::launch
