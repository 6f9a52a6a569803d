#include "trace/cuda_graph.h"

#include <ATen/ops/empty_strided.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/check.h"
#include "runtime/cuda/driver.h"
#include "trace/extern.h"

namespace braze::trace {
namespace {

constexpr size_t kMostGraphs = 32;   // sets of sizes per region
constexpr int kWarmUps = 2;          // libraries allocate their workspaces in the first calls
constexpr int kMostRecordings = 8;   // per set: parameters that keep moving

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

at::Tensor copy_of(const at::Tensor& t) {
  at::Tensor copy = at::empty_strided(t.sizes(), t.strides(), t.options());
  copy.copy_(t, /*non_blocking=*/true);
  return copy;
}

struct Recording {
  int calls = 0, recordings = 0;
  Object graph;
  std::vector<Object> inputs;            // the recorded tensors: copies of arguments, the parameters themselves
  std::vector<const void*> addresses;    // of the parameters
  std::vector<Object> outputs;
};

class Replaying final : public Runnable {
 public:
  Replaying(std::unique_ptr<Runnable> compiled, ReplayFacts facts) : compiled_(std::move(compiled)), facts_(std::move(facts)) {}
  ~Replaying() override {
    if (!Py_IsInitialized()) return;
    PyGILState_STATE gil = PyGILState_Ensure();
    recordings_.clear();
    pool_ = Object();
    PyGILState_Release(gil);
  }

  Report report() const override { return compiled_->report(); }

  bool run(PyObject* const* inputs, size_t n, PyObject** outputs, size_t m, const int64_t* symbols) override {
    // While one thread records or replays, another one's call runs as it is.
    if (!facts_.why_not.empty() || busy_) return compiled_->run(inputs, n, outputs, m, symbols);
    busy_ = true;
    struct Free {
      bool& busy;
      ~Free() { busy = false; }
    } free{busy_};
    HANDLE_TH_ERRORS
    Recording* r = find(inputs, n);
    if (!r || r->calls++ < kWarmUps) return compiled_->run(inputs, n, outputs, m, symbols);
    c10::impl::ExcludeDispatchKeyGuard below(keys_above_region());
    if ((!r->graph || moved(*r, inputs, n)) && !record(*r, inputs, n, m)) return compiled_->run(inputs, n, outputs, m, symbols);
    return replay(*r, inputs, n, outputs, m);
    END_HANDLE_TH_ERRORS_RET(false)
  }

 private:
  // Kinds of the inputs as they are given: constants may be left out.
  bool is_argument(size_t i, size_t n) const {
    if (n == facts_.inputs.size()) return facts_.inputs[i] == graph::InputKind::Argument;
    for (graph::InputKind k : facts_.inputs) {
      if (k == graph::InputKind::Constant) continue;
      if (i-- == 0) return k == graph::InputKind::Argument;
    }
    return true;
  }

  Recording* find(PyObject* const* inputs, size_t n) {
    std::vector<int64_t> key;
    for (size_t i = 0; i < n; ++i) {
      if (!is_argument(i, n)) continue;
      const at::Tensor& t = THPVariable_Unpack(inputs[i]);
      if (!t.is_cuda()) {
        give_up("an argument is on the CPU");
        return nullptr;
      }
      key.push_back(t.dim());
      key.insert(key.end(), t.sizes().begin(), t.sizes().end());
      key.insert(key.end(), t.strides().begin(), t.strides().end());
    }
    auto it = recordings_.find(key);
    if (it != recordings_.end()) return &it->second;
    if (recordings_.size() >= kMostGraphs) return nullptr;
    return &recordings_[key];
  }

  bool moved(const Recording& r, PyObject* const* inputs, size_t n) const {
    for (size_t i = 0; i < n; ++i)
      if (!is_argument(i, n) && THPVariable_Unpack(inputs[i]).const_data_ptr() != r.addresses[i]) return true;
    return false;
  }

  void give_up(const std::string& why) {
    facts_.why_not = why;
    if (const char* logs = std::getenv("BRAZE_LOGS"); logs && std::string_view(logs).find("graph_breaks") != std::string_view::npos)
      std::fprintf(stderr, "[braze] no CUDA Graph: %s\n", why.c_str());
  }

  std::string python_error_text() const {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Object a(type), b(value), c(trace), text(value ? PyObject_Str(value) : nullptr);
    const char* s = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    std::string out = s ? s : "unknown error";
    PyErr_Clear();
    return out.substr(0, out.find('\n'));
  }

  // False: the region is not to be recorded.
  bool record(Recording& r, PyObject* const* inputs, size_t n, size_t m) {
    if (++r.recordings > kMostRecordings) {
      give_up("its parameters move from call to call");
      return false;
    }
    r.graph = Object();
    r.outputs.clear();
    r.inputs.clear();
    r.addresses.assign(n, nullptr);
    std::vector<PyObject*> given;
    for (size_t i = 0; i < n; ++i) {
      const at::Tensor& t = THPVariable_Unpack(inputs[i]);
      if (is_argument(i, n)) {
        r.inputs.emplace_back(THPVariable_Wrap(copy_of(t)));
      } else {
        r.addresses[i] = t.const_data_ptr();
        r.inputs.emplace_back(Py_NewRef(inputs[i]));
      }
      given.push_back(r.inputs.back().get());
    }
    Object cuda(PyImport_ImportModule("torch.cuda"));
    Object graph(cuda ? PyObject_CallMethod(cuda.get(), "CUDAGraph", nullptr) : nullptr);
    Object make(graph ? PyObject_GetAttrString(cuda.get(), "graph") : nullptr);
    Object args(make ? PyTuple_Pack(1, graph.get()) : nullptr), names(PyDict_New());
    Object mode(PyUnicode_FromString("thread_local"));
    PyDict_SetItemString(names.get(), "capture_error_mode", mode.get());
    if (pool_) PyDict_SetItemString(names.get(), "pool", pool_.get());
    Object context(args ? PyObject_Call(make.get(), args.get(), names.get()) : nullptr);
    Object entered(context ? PyObject_CallMethod(context.get(), "__enter__", nullptr) : nullptr);
    if (!entered) {
      give_up("recording did not start: " + python_error_text());
      return false;
    }
    std::vector<PyObject*> results(m);
    std::string why;
    if (!compiled_->run(given.data(), n, results.data(), m)) {
      why = python_error_text();
    } else {
      for (PyObject* o : results) r.outputs.emplace_back(o);
    }
    Object left(PyObject_CallMethod(context.get(), "__exit__", "OOO", Py_None, Py_None, Py_None));
    if (!left) {
      std::string end = python_error_text();
      if (why.empty()) why = end;
    }
    if (why.empty() && shares_memory(r)) why = "two results share memory";
    if (!why.empty()) {
      r.outputs.clear();
      give_up(why);
      return false;
    }
    if (!pool_) pool_ = Object(PyObject_CallMethod(graph.get(), "pool", nullptr));
    r.graph = std::move(graph);
    return true;
  }

  static bool shares_memory(const Recording& r) {
    for (size_t i = 0; i < r.outputs.size(); ++i) {
      if (r.outputs[i].get() == Py_None) continue;
      const at::Tensor& t = THPVariable_Unpack(r.outputs[i].get());
      for (size_t j = 0; j < i; ++j)
        if (r.outputs[j].get() != Py_None && r.outputs[j].get() != r.outputs[i].get() && THPVariable_Unpack(r.outputs[j].get()).is_alias_of(t)) return true;
      for (const Object& in : r.inputs)
        if (THPVariable_Unpack(in.get()).is_alias_of(t)) return true;
    }
    return false;
  }

  bool replay(Recording& r, PyObject* const* inputs, size_t n, PyObject** outputs, size_t m) {
    TORCH_CHECK_INDEX(!runtime::cuda::take_error(), "index out of range in a GPU kernel that was launched before (its results are not valid)");
    for (size_t i = 0; i < n; ++i)
      if (is_argument(i, n)) THPVariable_Unpack(r.inputs[i].get()).copy_(THPVariable_Unpack(inputs[i]), /*non_blocking=*/true);
    Object done(PyObject_CallMethod(r.graph.get(), "replay", nullptr));
    if (!done) return false;
    for (uint32_t w : facts_.written) {
      if (!is_argument(w, n)) continue;
      const at::Tensor& t = THPVariable_Unpack(inputs[w]);
      t.copy_(THPVariable_Unpack(r.inputs[w].get()), /*non_blocking=*/true);
      if (!t.is_inference()) t.unsafeGetTensorImpl()->bump_version();
    }
    for (size_t i = 0; i < m; ++i) {
      PyObject* o = r.outputs[i].get();
      outputs[i] = nullptr;
      for (size_t j = 0; j < i && !outputs[i]; ++j)
        if (o == r.outputs[j].get()) outputs[i] = Py_NewRef(outputs[j]);
      if (!outputs[i]) outputs[i] = o == Py_None ? Py_NewRef(Py_None) : THPVariable_Wrap(copy_of(THPVariable_Unpack(o)));
    }
    return true;
  }

  std::unique_ptr<Runnable> compiled_;
  ReplayFacts facts_;
  std::map<std::vector<int64_t>, Recording> recordings_;
  Object pool_;
  bool busy_ = false;
};

}  // namespace

std::unique_ptr<Runnable> make_replaying(std::unique_ptr<Runnable> compiled, ReplayFacts facts) {
  return std::make_unique<Replaying>(std::move(compiled), std::move(facts));
}

}  // namespace braze::trace
