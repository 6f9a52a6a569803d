#include "launch/tuned_product.h"

#include <ATen/ops/abs.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/max.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/sub.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/version.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>

#include "base/build_id.h"
#include "base/check.h"
#include "base/fork_mutex.h"
#include "base/log_topics.h"
#include "codegen/choice.h"
#include "codegen/triton/compiler.h"
#include "runtime/cuda/driver.h"

namespace braze::launch {
namespace {

namespace cuda = runtime::cuda;
namespace triton = codegen::triton;
using Clock = std::chrono::steady_clock;

constexpr size_t kFlushed = size_t{128} << 20;  // bytes: more than a GPU's cache
constexpr double kWrong = 1.0 / 16;             // of the greatest result, by which no rounding makes two ways differ
const std::string kLibrary = "library";

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

// What a graph may still spend.
struct Budget {
  std::atomic<double> left{0};
};

struct Loaded {
  void* function = nullptr;
  uint32_t threads = 0, shared = 0, scratch = 0;
};

std::string text_of(const triton::Code& c) {
  return std::to_string(c.threads) + " " + std::to_string(c.shared) + " " + std::to_string(c.scratch) + "\n" + c.cubin;
}
std::optional<triton::Code> code_from(const std::string& text) {
  triton::Code c;
  int end = 0;
  if (std::sscanf(text.c_str(), "%u %u %u%n", &c.threads, &c.shared, &c.scratch, &end) != 3) return std::nullopt;
  if (text.size() <= static_cast<size_t>(end) || text[static_cast<size_t>(end)] != '\n') return std::nullopt;
  c.cubin = text.substr(static_cast<size_t>(end) + 1);
  return c;
}

triton::Source source_of(const plan::TemplateKernel& k) {
  triton::Source s{k.text, k.symbol, k.arguments, k.warps, k.sm};
  s.stages = k.stages;
  s.contract = true;
  return s;
}

// Kernels of this process by device and symbol, so that a graph that is made again needs no disk.
struct Kernels {
  ForkMutex mutex;
  std::map<std::pair<int, std::string>, Loaded> loaded;
  std::set<std::string> sought;  // keys whose kernels are being compiled for a search
};
Kernels& kernels() {
  static auto* k = new Kernels;
  return *k;
}

}  // namespace

class TunedProducts::One {
 public:
  One(const runtime::Program& program, const plan::Tuned& tuned, const std::vector<runtime::KernelFn>& functions,
      std::shared_ptr<Budget> budget)
      : program_(program), plan_(program.plan()), tuned_(tuned), functions_(functions), budget_(std::move(budget)) {
    const auto& call = std::get<plan::Extern>(plan_.steps[tuned_.steps[tuned_.call]]).call;
    const loop::View& result = call.outputs[0];
    device_ = trace::torch_device(plan_.buffers[result.buffer.index].device);
    number_ = std::max<int>(0, device_.index());
    for (sym::Expr e : result.sizes) what_ += (what_.empty() ? "" : "x") + plan_.arena->print(e);
    what_ = call.name + " " + what_ + " of " +
            std::to_string(static_cast<int64_t>(tuned_.work / static_cast<double>(tuned_.points)));
    for (const plan::TemplateKernel& k : tuned_.kernels)
      for (uint32_t b : k.buffers)
        if (plan_.buffers[b].where == plan::Where::Input) given_.insert(b);
    try {
      begin();
    } catch (const std::exception& e) {
      tell(Topic::Autotune, what_ + ": library, as " + e.what());
      state_ = State::Library;
    }
  }

  ~One() {
    try {
      forget();
    } catch (const std::exception&) {
    }
  }
  One(const One&) = delete;
  One& operator=(const One&) = delete;

  bool replace(runtime::Frame& frame, TorchFrame& call, uint32_t step,
               const std::vector<std::unique_ptr<ExternCall>>& calls) {
    State now = state_.load(std::memory_order_acquire);
    bool last = step == tuned_.steps.back();
    if (now == State::Open && last) search(frame, call, calls);
    if (now != State::Kernel) return false;
    for (uint32_t b : given_)
      if (reinterpret_cast<uintptr_t>(frame.pointer(b)) % 16) return false;
    if (last) {
      allocate(frame, call);
      launch(tuned_.kernels[chosen_], loaded_, [&](uint32_t b) { return frame.pointer(b); });
    }
    return true;
  }

 private:
  enum class State : uint8_t { Open, Library, Kernel };
  using Pointer = std::function<void*(uint32_t)>;  // of a buffer

  // Takes a choice that is known, or has the kernels compiled.
  void begin() {
    std::string version = triton::compiler().version ? triton::compiler().version() : "";
    if (version.empty() || !triton::compiler().start) {
      tell(Topic::Autotune, what_ + ": library, as there is no package triton (pip install triton)");
      state_ = State::Library;
      return;
    }
    made_for_ = build_id() + "\ntriton " + version;
    key_ = made_for_ + "\ntorch " TORCH_VERSION "\n" + cuda::identity(number_) + "\n" + tuned_.key;
    if (codegen::prefers_kernels()) key_ += "\npreferred";
    if (auto known = codegen::kept_choices(plan_.keeps_choices).recall(key_)) {
      if (*known == kLibrary) {
        state_ = State::Library;
        tell_known(kLibrary);
        return;
      }
      for (size_t i = 0; i < tuned_.kernels.size(); ++i)
        if (tuned_.kernels[i].symbol == *known)
          if (auto loaded = find(tuned_.kernels[i])) {
            chosen_ = i, loaded_ = *loaded, state_ = State::Kernel;
            tell_known(tuned_.kernels[i].label);
            return;
          }
    }
    {
      std::lock_guard lock(kernels().mutex);
      first_ = kernels().sought.insert(key_).second;
    }
    if (first_) start();  // takes the GIL: not under the lock
  }
  void tell_known(const std::string& chosen) const {
    tell(Topic::Autotune, what_ + ": " + chosen + ", as is known");
    codegen::report({codegen::Report::Kind::Product, what_, chosen, {}, 0});
  }
  void start() {
    std::vector<triton::Source> sources;
    for (const plan::TemplateKernel& k : tuned_.kernels) sources.push_back(source_of(k));
    ticket_ = triton::compiler().start(sources, tuned_.work);
  }
  // What was started is not waited for any more.
  void forget() {
    if (first_) {
      std::lock_guard lock(kernels().mutex);
      kernels().sought.erase(key_);
    }
    first_ = false;
    if (ticket_ && Py_IsInitialized()) triton::compiler().finish(ticket_, 0);
    ticket_ = 0;
  }

  std::optional<Loaded> find(const plan::TemplateKernel& k) const {
    {
      std::lock_guard lock(kernels().mutex);
      if (auto it = kernels().loaded.find({number_, k.symbol}); it != kernels().loaded.end()) return it->second;
    }
    if (!plan_.keeps_choices || build_id().empty()) return std::nullopt;
    auto text = codegen::DiskCache().find(k.symbol, made_for_ + "\n" + k.symbol);
    auto code = text ? code_from(*text) : std::nullopt;
    if (!code) return std::nullopt;
    return load(k, *code);
  }
  Loaded load(const plan::TemplateKernel& k, const triton::Code& code) const {
    Loaded l{cuda::load(code.cubin, k.symbol, code.shared, number_), code.threads, code.shared, code.scratch};
    std::lock_guard lock(kernels().mutex);
    kernels().loaded[{number_, k.symbol}] = l;
    return l;
  }

  void* stream() const {
    c10::impl::VirtualGuardImpl streams(device_.type());
    return streams.getStreamNativeHandle(streams.getStream(device_));
  }
  c10::DataPtr memory(size_t bytes) const {
    c10::DeviceGuard guard(device_);
    return c10::GetAllocator(device_.type())->allocate(bytes);
  }

  void launch(const plan::TemplateKernel& k, const Loaded& l, const Pointer& pointer) const {
    c10::SmallVector<void*, 16> values;
    for (uint32_t b : k.buffers) values.push_back(pointer(b));
    values.push_back(cuda::error_word());
    // Given back when it is enqueued: what takes it next on the stream waits its turn.
    c10::DataPtr scratch;
    if (l.scratch) scratch = memory(size_t{l.scratch} * k.blocks);
    values.push_back(scratch.get());
    values.push_back(nullptr);
    c10::SmallVector<void*, 16> parameters;
    for (void*& v : values) parameters.push_back(&v);
    cuda::launch(l.function, {k.blocks, l.threads, l.shared}, stream(), parameters.data(), number_);
  }

  // Results that the library's call would have allocated.
  void allocate(runtime::Frame& frame, TorchFrame& call) const {
    for (uint32_t b : tuned_.written) {
      const plan::Buffer& buffer = plan_.buffers[b];
      if (buffer.where != plan::Where::Adopted) continue;
      Geometry g = geometry(frame, b);
      call.adopted[b] =
          at::empty_strided(g.sizes, g.strides, at::TensorOptions(device_).dtype(trace::scalar_type(buffer.dtype)));
      frame.set_pointer(b, call.adopted[b].mutable_data_ptr());
    }
  }
  Geometry geometry(const runtime::Frame& frame, uint32_t b) const {
    const plan::Buffer& buffer = plan_.buffers[b];
    Geometry g;
    int64_t last = 0;
    for (size_t d = 0; d < buffer.sizes.size(); ++d) {
      g.sizes.push_back(frame.value(program_.slot(buffer.sizes[d])));
      g.strides.push_back(frame.value(program_.slot(buffer.strides[d])));
      last += (g.sizes.back() - 1) * g.strides.back();
    }
    g.bytes = static_cast<size_t>(last + 1) * size_of(buffer.dtype);
    return g;
  }

  // ---- the search ----
  void search(runtime::Frame& frame, TorchFrame& call, const std::vector<std::unique_ptr<ExternCall>>& calls) {
    if (cuda::is_recording(stream(), number_)) return;
    std::unique_lock lock(searching_, std::try_to_lock);
    if (!lock || state_ != State::Open) return;
    auto start = Clock::now();
    try {
      decide(frame, call, calls, start);
    } catch (const std::exception& e) {
      tell(Topic::Autotune, what_ + ": library, as " + e.what());
      state_ = State::Library;
    }
    try {
      forget();
    } catch (const std::exception&) {  // nothing was to be had of it
    }
    budget_->left = budget_->left - seconds_since(start);
  }

  void decide(runtime::Frame& frame, TorchFrame& call, const std::vector<std::unique_ptr<ExternCall>>& calls,
              Clock::time_point began) {
    c10::DeviceGuard guard(device_);
    // An equal product before this one in the graph has been searched for meanwhile.
    if (auto known = codegen::kept_choices(plan_.keeps_choices).recall(key_)) {
      for (size_t i = 0; i < tuned_.kernels.size(); ++i)
        if (auto loaded = tuned_.kernels[i].symbol == *known ? find(tuned_.kernels[i]) : std::nullopt)
          chosen_ = i, loaded_ = *loaded;
      state_.store(loaded_.function ? State::Kernel : State::Library, std::memory_order_release);
      return;
    }
    if (!ticket_) start();
    std::vector<triton::Outcome> made = triton::compiler().finish(ticket_, std::max(0.0, budget_->left.load()));
    ticket_ = 0;
    std::vector<std::pair<size_t, Loaded>> ways;  // kernel
    std::map<std::string, triton::Code> codes;
    bool complete = made.size() == tuned_.kernels.size();
    for (size_t i = 0; i < made.size(); ++i) {
      const plan::TemplateKernel& k = tuned_.kernels[i];
      if (!made[i].code) {
        complete = complete && !made[i].refused.empty();
        tell(Topic::Autotune,
             what_ + ": not " + k.label + ": " + (made[i].refused.empty() ? "not compiled in time" : made[i].refused));
        continue;
      }
      try {
        ways.emplace_back(i, load(k, *made[i].code));
        codes.emplace(k.symbol, std::move(*made[i].code));
      } catch (const Unsupported& e) {
        tell(Topic::Autotune, what_ + ": not " + k.label + ": " + e.detail());
      }
    }
    codegen::Timing timing = time(frame, call, calls, ways);
    codegen::Report report{codegen::Report::Kind::Product, what_, kLibrary, {{kLibrary, timing.milliseconds[0]}}, 0};
    for (size_t w = 0; w < ways.size(); ++w)
      report.ways.emplace_back(tuned_.kernels[ways[w].first].label, timing.milliseconds[w + 1]);
    report.chosen = report.ways[timing.chosen].first;
    report.seconds = seconds_since(began);
    std::string line = what_ + ": " + report.chosen + " of";
    char number[32];
    for (const auto& [name, ms] : report.ways) {
      std::snprintf(number, sizeof number, " %.4f ms", ms);
      line += " [" + name + (ms < 0 ? " slow or wrong" : number) + "]";
    }
    tell(Topic::Autotune, line);
    codegen::report(report);
    std::string chosen = kLibrary;
    if (timing.chosen) {
      const auto& [kernel, loaded] = ways[timing.chosen - 1];
      chosen_ = kernel, loaded_ = loaded, chosen = tuned_.kernels[kernel].symbol;
      if (plan_.keeps_choices && !build_id().empty())
        codegen::DiskCache().keep(chosen, made_for_ + "\n" + chosen, text_of(codes.at(chosen)));
    }
    // What was found in too little time is no answer for ever.
    codegen::kept_choices(plan_.keeps_choices).keep(key_, chosen, complete && !codegen::prefers_kernels());
    state_.store(timing.chosen ? State::Kernel : State::Library, std::memory_order_release);
  }

  codegen::Timing time(runtime::Frame& frame, TorchFrame& call, const std::vector<std::unique_ptr<ExternCall>>& calls,
                       const std::vector<std::pair<size_t, Loaded>>& ways) const {
    const auto* nest = std::get_if<plan::Launch>(&plan_.steps[tuned_.steps.back()]);
    std::map<uint32_t, c10::DataPtr> mine, theirs;  // what kernels and the library's nest write meanwhile
    for (uint32_t b : tuned_.written) {
      mine[b] = memory(static_cast<size_t>(frame.bytes(b)));
      if (nest && std::find(nest->buffers.begin(), nest->buffers.end(), b) != nest->buffers.end() && !by_call(b))
        theirs[b] = memory(static_cast<size_t>(frame.bytes(b)));
    }
    auto place = [&](const std::map<uint32_t, c10::DataPtr>& own) {
      return [&](uint32_t b) {
        auto it = own.find(b);
        return it == own.end() ? frame.pointer(b) : it->second.get();
      };
    };
    at::Tensor flushed = at::empty_strided({kFlushed}, {1}, at::TensorOptions(device_).dtype(at::kByte));
    std::set<size_t> checked;
    return codegen::time_ways(ways.size() + 1, [&](size_t way) {
      flushed.zero_();
      void* s = stream();
      double ms = cuda::milliseconds(s, number_, [&] {
        if (way)
          launch(tuned_.kernels[ways[way - 1].first], ways[way - 1].second, place(mine));
        else
          by_library(frame, call, calls, place(theirs));
      });
      if (way && checked.insert(way).second)
        for (uint32_t b : tuned_.written) compare(frame, b, place(theirs)(b), mine.at(b).get());
      return ms;
    });
  }

  bool by_call(uint32_t buffer) const {
    const auto& call = std::get<plan::Extern>(plan_.steps[tuned_.steps[tuned_.call]]).call;
    return call.outputs[0].buffer.index == buffer;
  }

  // The steps as they are, with a nest's results elsewhere.
  void by_library(runtime::Frame& frame, TorchFrame& call, const std::vector<std::unique_ptr<ExternCall>>& calls,
                  const Pointer& pointer) const {
    for (uint32_t step : tuned_.steps) {
      auto* nest = std::get_if<plan::Launch>(&plan_.steps[step]);
      if (!nest) {
        calls[step]->run(frame, call, call.calls[step]);
        continue;
      }
      const plan::Kernel& k = plan_.kernels[nest->kernel];
      std::vector<void*> pointers;
      std::vector<int64_t> sizes;
      for (uint32_t b : nest->buffers) pointers.push_back(pointer(b));
      for (sym::Expr e : nest->sizes) sizes.push_back(frame.value(program_.slot(e)));
      void *error = cuda::error_word(), *none = nullptr;
      std::vector<void*> parameters;
      for (void*& p : pointers) parameters.push_back(&p);
      for (int64_t& n : sizes) parameters.push_back(&n);
      parameters.insert(parameters.end(), {&error, &none, &none});
      cuda::launch(reinterpret_cast<void*>(functions_[nest->kernel]),
                   {static_cast<uint32_t>(frame.value(program_.slot(nest->blocks))), k.threads, k.shared, k.early},
                   stream(), parameters.data(), number_);
    }
  }

  // Throws where two results differ by more than rounding.
  void compare(const runtime::Frame& frame, uint32_t b, void* theirs, void* mine) const {
    const plan::Buffer& buffer = plan_.buffers[b];
    Geometry g = geometry(frame, b);
    int64_t elements = 1;
    for (int64_t n : g.sizes) elements *= n;
    if (!is_floating(buffer.dtype) || elements != tuned_.points) return;  // part of it is written by others
    auto wrapped = [&](void* p) { return wrap_memory(p, g, trace::scalar_type(buffer.dtype), device_); };
    auto most = [](const at::Tensor& t) { return at::max(at::abs(at::nan_to_num(t, 0, 0, 0))).item<double>(); };
    double difference = most(at::sub(wrapped(theirs), wrapped(mine))), greatest = most(wrapped(theirs));
    if (difference > kWrong * greatest) {
      tell(Topic::Autotune, what_ + ": a kernel's result is off by " + std::to_string(difference) +
                                " where the greatest is " + std::to_string(greatest));
      throw std::runtime_error("a wrong result");
    }
  }

  const runtime::Program& program_;
  const plan::Plan& plan_;
  const plan::Tuned& tuned_;
  const std::vector<runtime::KernelFn> functions_;
  std::shared_ptr<Budget> budget_;
  c10::Device device_{c10::kCPU};
  int number_ = 0;
  std::string what_, key_, made_for_;
  std::set<uint32_t> given_;  // inputs, which may lie anywhere
  uint64_t ticket_ = 0;
  bool first_ = false;  // of its key
  std::atomic<State> state_ = State::Open;
  std::mutex searching_;
  size_t chosen_ = 0;
  Loaded loaded_;
};

TunedProducts::TunedProducts(const runtime::Program& program, const std::vector<runtime::KernelFn>& kernels) {
  const plan::Plan& plan = program.plan();
  if (plan.tuned.empty()) return;
  auto budget = std::make_shared<Budget>();
  budget->left = static_cast<double>(plan.tuning_seconds);
  of_step_.resize(plan.steps.size());
  for (const plan::Tuned& t : plan.tuned) {
    all_.push_back(std::make_unique<One>(program, t, kernels, budget));
    for (uint32_t s : t.steps) of_step_[s] = all_.back().get();
  }
}

TunedProducts::~TunedProducts() = default;

bool TunedProducts::replace(runtime::Frame& frame, TorchFrame& call, uint32_t step,
                            const std::vector<std::unique_ptr<ExternCall>>& calls) const {
  return !of_step_.empty() && of_step_[step] && of_step_[step]->replace(frame, call, step, calls);
}

}  // namespace braze::launch
