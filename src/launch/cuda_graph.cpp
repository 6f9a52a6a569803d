#include "launch/cuda_graph.h"

#include <ATen/ops/empty_strided.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/check.h"
#include "base/log_topics.h"
#include "launch/extern.h"
#include "launch/runnable.h"
#include "launch/written_inputs.h"
#include "runtime/cuda/driver.h"

namespace braze::launch {
namespace {

constexpr size_t kMostSets = 32;                    // sets of sizes per graph
constexpr int kWarmUps = 2;                         // libraries allocate their workspaces in the first calls
constexpr int kMostRecordings = 8;                  // per set: parameters that keep moving
constexpr size_t kMostAlive = 2;                    // recordings per set that take turns
constexpr size_t kWorthLending = size_t{16} << 20;  // bytes of results that take longer to copy than is lost otherwise
constexpr int kPatience = 4;  // calls that found all that was lent still in use, before results are copied after all

class Object {  // an owned reference, to be used with the GIL
 public:
  Object() = default;
  explicit Object(PyObject* steal) : p_(steal) {}
  Object(Object&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  Object& operator=(Object&& o) noexcept {
    std::swap(p_, o.p_);
    return *this;
  }
  ~Object() {
    if (p_ && Py_IsInitialized()) Py_DECREF(p_);
  }
  PyObject* get() const { return p_; }
  explicit operator bool() const { return p_; }

 private:
  PyObject* p_ = nullptr;
};

bool is_expanded(const at::Tensor& t) {
  for (int64_t d = 0; d < t.dim(); ++d)
    if (t.stride(d) == 0 && t.size(d) > 1) return true;
  return false;
}

// The part of an expanded tensor that holds all its elements.
at::Tensor unexpanded(const at::Tensor& t) {
  c10::SmallVector<int64_t, 5> sizes(t.sizes().begin(), t.sizes().end());
  for (int64_t d = 0; d < t.dim(); ++d)
    if (t.stride(d) == 0) sizes[d] = std::min<int64_t>(sizes[d], 1);
  return tensor_on(t.storage(), sizes, t.strides(), t.storage_offset(), t.scalar_type());
}

void copy_to(const at::Tensor& to, const at::Tensor& from) {
  if (is_expanded(to))
    unexpanded(to).copy_(unexpanded(from), /*non_blocking=*/true);
  else
    to.copy_(from, /*non_blocking=*/true);
}

// With the strides of `t`.
at::Tensor copy_of(const at::Tensor& t) {
  at::Tensor copy = at::empty_strided(t.sizes(), t.strides(), t.options());
  copy_to(copy, t);
  return copy;
}

std::string python_error_text() {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  Object a(type), b(value), c(trace), text(value ? PyObject_Str(value) : nullptr);
  const char* s = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  std::string out = s ? s : "unknown error";
  PyErr_Clear();
  return out.substr(0, out.find('\n'));
}

// A recording that broke off leaves the GPU's generator of random numbers as if it still went on: a copy of its state
// does not.
void heal_generator() {
  Object cuda(PyImport_ImportModule("torch.cuda"));
  Object device(cuda ? PyObject_CallMethod(cuda.get(), "current_device", nullptr) : nullptr);
  Object all(device ? PyObject_GetAttrString(cuda.get(), "default_generators") : nullptr);
  Object generator(all ? PyObject_GetItem(all.get(), device.get()) : nullptr);
  Object state(generator ? PyObject_CallMethod(generator.get(), "clone_state", nullptr) : nullptr);
  Object done(state ? PyObject_CallMethod(generator.get(), "graphsafe_set_state", "O", state.get()) : nullptr);
  PyErr_Clear();
}

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

}  // namespace

struct ReplayedGraph::Recording {
  Object graph;
  std::vector<at::Tensor> inputs;      // copies of arguments; undefined for what stays
  std::vector<const void*> addresses;  // of what stays
  c10::SmallVector<at::Tensor, 8> outputs;
  size_t copied = 0;                                       // how many of the first ones are copied out
  std::vector<std::pair<c10::StorageImpl*, size_t>> lent;  // and how often the recording itself refers to it

  bool free() const {
    for (auto [storage, own] : lent)
      if (c10::raw::intrusive_ptr::use_count(storage) > own) return false;
    return true;
  }
};

struct ReplayedGraph::Recordings {
  int calls = 0, recorded = 0, in_use = 0;
  size_t result_bytes = 0;  // of those that may be copied
  bool keeps() const { return in_use >= kPatience; }
  std::vector<const void*> arguments;  // where they lay in the last call
  std::vector<char> moved;             // per argument: it is to be copied
  std::vector<std::unique_ptr<Recording>> alive;

  // Where one argument moves, others will; what is written moves last: caches, buffers, states.
  void note(const CompiledGraph::Call& call, const std::vector<uint32_t>& written) {
    bool first = arguments.empty();
    arguments.resize(call.inputs.size(), nullptr);
    moved.resize(call.inputs.size(), 0);
    auto is_written = [&](size_t i) { return std::find(written.begin(), written.end(), i) != written.end(); };
    bool one = false, one_written = false;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const void* at = call.inputs[i] ? call.inputs[i]->const_data_ptr() : nullptr;
      if (!first && at != arguments[i] && !moved[i]) (is_written(i) ? one_written : one) = true;
      arguments[i] = at;
    }
    for (size_t i = 0; (one || one_written) && i < moved.size(); ++i) moved[i] |= one_written || !is_written(i);
  }
};

struct ReplayedGraph::Objects {
  Object pool;                        // shared by recordings that lend nothing
  std::optional<c10::Stream> stream;  // the one that all replays are enqueued to
};

ReplayedGraph::ReplayedGraph(const CompiledGraph& graph, std::vector<Placement> inputs, size_t copied_results)
    : graph_(graph),
      inputs_(std::move(inputs)),
      copied_results_(copied_results),
      facts_(graph.replay_facts()),
      objects_(std::make_unique<Objects>()) {
  BRAZE_CHECK(inputs_.size() == graph.inputs(), "placements of other inputs than the graph's");
  if (!facts_.why_not.empty()) give_up(facts_.why_not);
}

ReplayedGraph::~ReplayedGraph() {
  if (!Py_IsInitialized()) {
    for (auto& [key, all] : recordings_)
      for (auto& r : all.alive) (void)r.release();
    return;
  }
  pybind11::gil_scoped_acquire gil;
  recordings_.clear();
  objects_.reset();
}

bool ReplayedGraph::run(CompiledGraph::Call& call) {
  // While one thread records or replays, another one's call runs as it is.
  if (!facts_.why_not.empty() || busy_.exchange(true)) {
    graph_.run(call);
    return false;
  }
  struct Free {
    std::atomic<bool>& busy;
    ~Free() { busy = false; }
  } free{busy_};
  Recordings* all = find(call);
  if (all) all->note(call, facts_.written);
  if (all && all->calls++ >= kWarmUps) {
    pybind11::gil_scoped_acquire gil;
    c10::DeviceGuard device(objects_->stream->device());
    c10::impl::ExcludeDispatchKeyGuard below(keys_above_region());
    if (Recording* r = choose(*all, call)) {
      replay(*r, call);
      return true;
    }
  }
  graph_.run(call);
  if (all && all->calls <= kWarmUps) {
    all->result_bytes = 0;
    for (size_t i = 0; i < copied_results_ && i < call.results.size(); ++i)
      if (call.results[i].defined() && facts_.handed_back[i] < 0) all->result_bytes += call.results[i].nbytes();
  }
  return false;
}

ReplayedGraph::Recordings* ReplayedGraph::find(const CompiledGraph::Call& call) {
  Key& key = key_;
  key.clear();
  std::optional<c10::Device> looked_at;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!call.inputs[i]) continue;
    const at::Tensor& t = *call.inputs[i];
    if (!t.is_cuda()) {
      give_up("an argument is on the CPU");
      return nullptr;
    }
    if (t.device() != looked_at) {  // nearly always all are on one
      looked_at = t.device();
      c10::Stream stream = current_stream(t.device());
      if (!objects_->stream) objects_->stream = stream;
      if (*objects_->stream != stream) return nullptr;
    }
    if (inputs_[i] == Placement::Stays) continue;
    key.push_back(t.dim());
    key.insert(key.end(), t.sizes().begin(), t.sizes().end());
    key.insert(key.end(), t.strides().begin(), t.strides().end());
  }
  if (!objects_->stream) return nullptr;
  if (call.symbols) key.insert(key.end(), call.symbols, call.symbols + graph_.plan().size_symbols.size());
  auto it = recordings_.find(key);
  if (it != recordings_.end()) return &it->second;
  if (recordings_.size() >= kMostSets) return nullptr;
  return &recordings_[key];
}

bool ReplayedGraph::fits(const Recording& r, const Recordings& all, const CompiledGraph::Call& call) const {
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (call.inputs[i] && !r.inputs[i].defined() && all.arguments[i] != r.addresses[i]) return false;
  return true;
}

// A recording that may be replayed now, perhaps a new one; nullptr: none.
ReplayedGraph::Recording* ReplayedGraph::choose(Recordings& all, const CompiledGraph::Call& call) {
  std::unique_ptr<Recording>* stale = nullptr;
  for (auto& r : all.alive) {
    if (!r->free()) continue;
    if (fits(*r, all, call)) return r.get();
    stale = &r;
  }
  bool lends = facts_.outputs > copied(all);
  bool more = all.alive.size() < (lends ? kMostAlive : 1);
  if (!more && !stale) {
    // Who holds results for long does not want them lent.
    if (copied(all) == copied_results_ || ++all.in_use < kPatience) return nullptr;
    more = true;
  }
  if (++all.recorded > kMostRecordings) {
    give_up("its parameters move from call to call");
    return nullptr;
  }
  auto fresh = std::make_unique<Recording>();
  if (!record(*fresh, all, call)) return nullptr;
  if (more) {
    all.alive.push_back(std::move(fresh));
    return all.alive.back().get();
  }
  *stale = std::move(fresh);
  return stale->get();
}

size_t ReplayedGraph::copied(const Recordings& all) const {
  return all.result_bytes < kWorthLending || all.keeps() ? copied_results_ : 0;
}

void ReplayedGraph::give_up(const std::string& why) {
  facts_.why_not = why;
  log_not_recorded(why);
}

void log_not_recorded(const std::string& why) {
  tell(logs(Topic::CudaGraphs) ? Topic::CudaGraphs : Topic::GraphBreaks, "no CUDA Graph: " + why);
}

// False: the graph is not to be recorded.
bool ReplayedGraph::record(Recording& r, const Recordings& all, const CompiledGraph::Call& call) {
  c10::impl::VirtualGuardImpl device(c10::kCUDA);
  c10::Stream stream = device.getStream(device.getDevice());
  r.copied = copied(all);
  bool lends = facts_.outputs > r.copied;
  CompiledGraph::Call recorded;
  recorded.inputs.resize(inputs_.size(), nullptr);
  recorded.symbols = call.symbols;
  r.inputs.resize(inputs_.size());
  r.addresses.assign(inputs_.size(), nullptr);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!call.inputs[i]) continue;
    if (inputs_[i] == Placement::Copied && all.moved[i]) {
      r.inputs[i] = copy_of(*call.inputs[i]);
      recorded.inputs[i] = &r.inputs[i];
    } else {
      r.addresses[i] = call.inputs[i]->const_data_ptr();
      recorded.inputs[i] = call.inputs[i];
    }
  }
  Object cuda(PyImport_ImportModule("torch.cuda"));
  Object graph(cuda ? PyObject_CallMethod(cuda.get(), "CUDAGraph", nullptr) : nullptr);
  Object make(graph ? PyObject_GetAttrString(cuda.get(), "graph") : nullptr);
  Object args(make ? PyTuple_Pack(1, graph.get()) : nullptr), names(PyDict_New());
  Object mode(PyUnicode_FromString("thread_local"));
  PyDict_SetItemString(names.get(), "capture_error_mode", mode.get());
  if (!lends && objects_->pool) PyDict_SetItemString(names.get(), "pool", objects_->pool.get());
  Object context(args ? PyObject_Call(make.get(), args.get(), names.get()) : nullptr);
  Object entered(context ? PyObject_CallMethod(context.get(), "__enter__", nullptr) : nullptr);
  if (!entered) {
    give_up("recording did not start: " + python_error_text());
    heal_generator();
    device.exchangeStream(stream);
    return false;
  }
  std::string why;
  try {
    graph_.run(recorded);
    r.outputs = std::move(recorded.results);
  } catch (const std::exception& e) {
    why = e.what();
    why = why.substr(0, why.find('\n'));
  }
  Object left(PyObject_CallMethod(context.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
  if (!left) {
    std::string end = python_error_text();
    if (why.empty()) why = end;
  }
  bool broken = !why.empty();
  auto shares_memory = [&](size_t i) {
    const at::Tensor& t = r.outputs[i];
    for (size_t j = 0; j < i; ++j)
      if (r.outputs[j].defined() && !r.outputs[j].is_same(t) && r.outputs[j].is_alias_of(t) &&
          (i < r.copied || j < r.copied))
        return true;
    for (size_t k = 0; k < inputs_.size(); ++k)
      if (inputs_[k] == Placement::Copied && recorded.inputs[k] && recorded.inputs[k]->is_alias_of(t)) return true;
    return false;
  };
  for (size_t i = 0; why.empty() && i < r.outputs.size(); ++i)
    if (r.outputs[i].defined() && facts_.handed_back[i] < 0 && shares_memory(i)) why = "two results share memory";
  if (!why.empty()) {
    r.outputs.clear();
    give_up(why);
    if (broken) heal_generator();
    device.exchangeStream(stream);
    return false;
  }
  for (size_t i = 0; i < r.outputs.size(); ++i)
    if (facts_.handed_back[i] >= 0) r.outputs[i] = at::Tensor();
  for (size_t i = r.copied; i < r.outputs.size(); ++i) {
    if (!r.outputs[i].defined()) continue;
    c10::StorageImpl* storage = r.outputs[i].storage().unsafeGetStorageImpl();
    r.lent.emplace_back(storage, 0);
  }
  recorded = {};
  for (auto& [storage, own] : r.lent) own = c10::raw::intrusive_ptr::use_count(storage);
  if (!lends && !objects_->pool) objects_->pool = Object(PyObject_CallMethod(graph.get(), "pool", nullptr));
  r.graph = std::move(graph);
  return true;
}

void ReplayedGraph::replay(Recording& r, CompiledGraph::Call& call) const {
  const bool failed_before = runtime::cuda::take_error();
  if (failed_before) note_not_again(true);
  TORCH_CHECK_INDEX(!failed_before,
                    "index out of range in a GPU kernel that was launched before (its results are not valid)");
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (r.inputs[i].defined()) copy_to(r.inputs[i], *call.inputs[i]);
  Object done(PyObject_CallMethod(r.graph.get(), "replay", nullptr));
  if (!done) throw_python_error();
  for (uint32_t w : facts_.written) {
    if (!call.inputs[w]) continue;
    const at::Tensor& t = *call.inputs[w];
    if (r.inputs[w].defined()) copy_to(t, r.inputs[w]);
    if (!t.is_inference()) t.unsafeGetTensorImpl()->bump_version();
  }
  call.results.resize(r.outputs.size());
  for (size_t i = 0; i < r.outputs.size(); ++i) {
    const at::Tensor& o = r.outputs[i];
    at::Tensor& result = call.results[i];
    result = at::Tensor();
    if (facts_.handed_back[i] >= 0) {
      result = *call.inputs[facts_.handed_back[i]];
      continue;
    }
    if (!o.defined()) continue;
    for (size_t j = 0; j < i && !result.defined(); ++j)
      if (o.is_same(r.outputs[j])) result = call.results[j];
    if (result.defined()) continue;
    result =
        i < r.copied ? copy_of(o) : tensor_on(o.storage(), o.sizes(), o.strides(), o.storage_offset(), o.scalar_type());
  }
}

std::vector<Placement> placements(const graph::Graph& graph) {
  std::vector<Placement> out;
  for (const graph::Input& in : graph.inputs)
    out.push_back(in.kind == graph::InputKind::Argument ? Placement::Copied : Placement::Stays);
  return out;
}

}  // namespace braze::launch
