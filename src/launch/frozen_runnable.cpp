#include "launch/frozen_runnable.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <mutex>

#include "base/check.h"
#include "launch/cuda_graph.h"
#include "launch/runnable.h"
#include "trace/convert.h"

namespace braze::launch {
namespace {

// A tensor as it was when something was made of it. Holds its place in memory, not its storage: no other tensor is
// taken for it.
class Seen {
 public:
  explicit Seen(const at::Tensor& t)
      : tensor_(t.getIntrusivePtr()), data_(data_of(t)), version_(t.is_inference() ? 0 : t._version()) {}
  // Writes to tensors of inference mode are not counted: they are never the same.
  bool is(const at::Tensor& t) const {
    return t.unsafeGetTensorImpl() == tensor_._unsafe_get_target() && data_of(t) == data_ && !t.is_inference() &&
           t._version() == version_;
  }

 private:
  static const void* data_of(const at::Tensor& t) {
    return t.has_storage() && t.storage().nbytes() ? t.storage().data() : nullptr;
  }
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor_;
  const void* data_;
  int64_t version_;
};

class FrozenRunnable : public Runnable {
 public:
  FrozenRunnable(driver::Frozen frozen, Captured captured, const driver::Dumps& dumps, const Options& options)
      : given_(inputs_without_constants(captured.graph)),
        views_(std::move(captured.views)),
        lazy_(std::move(captured.lazy)),
        constants_(std::make_shared<Constants>(std::move(captured.constants))),
        num_inputs_(captured.graph.inputs.size()),
        sources_(std::move(frozen.sources)) {
    size_t constant = 0;
    for (uint32_t i = 0; i < num_inputs_; ++i) {
      if (frozen.inputs[i]) watched_.push_back(i);
      if (captured.graph.inputs[i].kind == graph::InputKind::Constant)
        constant_inputs_.emplace_back(i, &constants_->tensors().at(constant++));
    }
    std::vector<bool> packable = frozen.inputs;
    packable.resize(frozen.rest.inputs.size(), true);
    report_ = report_of(frozen.call, dumps);
    rest_ = std::make_unique<CompiledGraph>(frozen.rest, frozen.call, constants_, Aliases::Fresh,
                                            std::move(captured.write_counts), std::vector<sym::Expr>(), packable);
    if (!frozen.made.outputs.empty())
      made_ = std::make_unique<CompiledGraph>(frozen.made, frozen.making, constants_, Aliases::Fresh);
    for (const graph::Value& v : frozen.made.values())
      if (v.type.device.type != DeviceType::CPU) device_ = v.type.device;
    // Graphs are recorded on the memory that they read; whoever times calls in both ways reads all.
    discards_ = options.freezing_discard_parameters && !options.cuda_graphs && !options.guard_speed;
    if (options.cuda_graphs)
      replayed_ = std::make_unique<ReplayedGraph>(*rest_, placements(frozen.rest), rest_->outputs());
  }

  bool run(PyObject* const* inputs, size_t n, PyObject** outputs, size_t m, const int64_t* symbols) override {
    HANDLE_TH_ERRORS
    check_asked(m, rest_->outputs());
    CompiledGraph::Call call;
    call.holds_gil = true;
    call.symbols = symbols;
    unpack_inputs(given_, inputs, n, call, num_inputs_);
    for (const auto& [i, constant] : constant_inputs_)
      if (!call.inputs[i]) call.inputs[i] = constant;
    Running running;
    std::shared_ptr<const Values> values = current(call);
    for (const at::Tensor& t : values->made) call.inputs.push_back(&t);
    const bool discards = discards_ && values->stand_ins.empty();
    const auto given = discards ? call.inputs : Inputs();
    for (size_t i = 0; i < values->stand_ins.size(); ++i)
      if (values->stand_ins[i].defined()) call.inputs[watched_[i]] = &values->stand_ins[i];
    if (replayed_)
      replayed_->run(call);
    else
      rest_->run(call);
    // Another call may be making something of what it reads, for this graph or for another.
    if (discards && Running::calls == 1) discard(given, *values);
    give_results(call, views_, lazy_, outputs, m);
    return true;
    END_HANDLE_TH_ERRORS_RET(false)
  }

  Report report() const override {
    Report r = report_;
    if (made_) r.plan = "once\n" + made_->plan().describe() + "each call\n";
    r.plan += rest_->plan().describe();
    return r;
  }

 private:
  struct Values {
    std::vector<Seen> seen;        // of the inputs that are watched
    std::vector<at::Tensor> made;  // of them
    // Once something was discarded: per input that is watched what is in its place, undefined for those that are there.
    std::vector<at::Tensor> stand_ins;
  };

  using Inputs = c10::SmallVector<const at::Tensor*, 16>;
  // Counts the calls of all frozen graphs, under the GIL, which each holds as it begins and ends.
  struct Running {
    Running() { ++calls; }
    ~Running() { --calls; }
    Running(const Running&) = delete;
    inline static int calls = 0;
  };

  static bool is_discarded(const at::Tensor& t) { return t.has_storage() && t.numel() && !t.storage().nbytes(); }

  // After a call, which packed what it packs. Memory that others look at, too, stays.
  void discard(const Inputs& given, const Values& now) {
    auto fresh = std::make_shared<Values>(now);
    fresh->seen.clear();
    const std::vector<bool> reads = rest_->reads_in_memory();
    for (uint32_t i : watched_) {
      const at::Tensor& t = *given[i];
      auto constant = [&](const auto& c) { return c.first == i; };
      const bool there = reads[i] || std::ranges::any_of(constant_inputs_, constant) || !t.has_storage() ||
                         t.is_inference() || !t.numel() || t.storage().use_count() != 1;
      at::Tensor instead;
      if (!there) {
        instead = at::empty({}, t.options()).expand(t.sizes());
        c10::StorageImpl* storage = t.storage().unsafeGetStorageImpl();
        storage->set_data_ptr_noswap(c10::DataPtr(nullptr, t.device()));
        storage->release_data_and_set_meta_custom_data_ptr_error_msg_(
            "freezing_discard_parameters has given back the memory of this parameter or buffer, which braze.compile's "
            "calls no longer read: load its values anew (load_state_dict(..., assign=True)), or compile without that "
            "option");
        storage->set_nbytes(0);
      }
      fresh->stand_ins.push_back(std::move(instead));
      fresh->seen.emplace_back(t);
    }
    rest_->keep_packed();
    std::lock_guard lock(mutex_);
    values_ = fresh;
  }

  // Under the GIL, which the program that makes the values does not give up for them: two calls may make them, the
  // second one's stay.
  std::shared_ptr<const Values> current(const CompiledGraph::Call& call) {
    std::shared_ptr<const Values> values;
    {
      std::lock_guard lock(mutex_);
      values = values_;
    }
    auto same = [&](size_t i) { return values->seen[i].is(*call.inputs[watched_[i]]); };
    bool all = values != nullptr;
    for (size_t i = 0; all && i < watched_.size(); ++i) all = same(i);
    if (all) return values;
    for (uint32_t i : watched_)
      TORCH_CHECK(!is_discarded(*call.inputs[i]), "a parameter or buffer of sizes ", call.inputs[i]->sizes(),
                  " is to be read again, as another one has changed or the program is compiled anew, but "
                  "freezing_discard_parameters has given back its memory: load all of them anew "
                  "(load_state_dict(..., assign=True)), or compile without that option");
    auto fresh = std::make_shared<Values>();
    for (uint32_t i : watched_) fresh->seen.emplace_back(*call.inputs[i]);
    if (made_) {
      CompiledGraph::Call making;
      making.holds_gil = true;
      for (uint32_t i : sources_) making.inputs.push_back(call.inputs[i]);
      made_->run(making);
      for (at::Tensor& t : making.results) fresh->made.push_back(std::move(t));
      // Later calls may be on another stream.
      if (device_) {
        c10::Device device = trace::torch_device(*device_);
        c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
      }
    }
    rest_->forget_packed();
    std::lock_guard lock(mutex_);
    values_ = fresh;
    return fresh;
  }

  std::vector<uint32_t> given_;
  std::vector<trace::OutputView> views_;
  std::vector<trace::LazyBits> lazy_;
  std::shared_ptr<const Constants> constants_;
  std::vector<std::pair<uint32_t, const at::Tensor*>> constant_inputs_;
  size_t num_inputs_;
  bool discards_ = false;
  std::vector<uint32_t> sources_, watched_;  // inputs: of `made_`, and all that are frozen
  std::unique_ptr<CompiledGraph> made_;      // nullptr: weights are packed, and nothing else
  std::unique_ptr<CompiledGraph> rest_;
  std::unique_ptr<ReplayedGraph> replayed_;
  std::optional<Device> device_;
  std::mutex mutex_;
  std::shared_ptr<const Values> values_;
  Report report_;
};

}  // namespace

std::unique_ptr<Runnable> make_frozen_runnable(Captured& captured, const Options& options, bool texts) {
  driver::Dumps dumps;
  driver::Frozen frozen = driver::compile_frozen(captured.graph, options, texts ? &dumps : nullptr);
  if (frozen.inputs.empty()) return nullptr;
  return std::make_unique<FrozenRunnable>(std::move(frozen), std::move(captured), dumps, options);
}

}  // namespace braze::launch
