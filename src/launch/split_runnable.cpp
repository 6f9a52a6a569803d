#include "launch/split_runnable.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>

#include "base/check.h"
#include "launch/cuda_graph.h"
#include "launch/runnable.h"

namespace braze::launch {
namespace {

class SplitRunnable : public Runnable {
 public:
  SplitRunnable(driver::Split split, Captured captured, const driver::Dumps& dumps)
      : given_(inputs_without_constants(captured.graph)),
        views_(std::move(captured.views)),
        lazy_(std::move(captured.lazy)),
        constants_(std::make_shared<Constants>(std::move(captured.constants))),
        num_inputs_(captured.graph.inputs.size()),
        slots_(split.slots),
        outputs_(std::move(split.outputs)) {
    report_.passes = dumps.passes;
    report_.graph = dumps.graph;
    report_.lowered = dumps.lowered;
    report_.scheduled = dumps.scheduled;
    report_.source = dumps.kernels;
    for (uint32_t i = 0; i < num_inputs_; ++i)
      if (captured.graph.inputs[i].kind == graph::InputKind::Constant) constant_slots_.push_back(i);
    std::vector<size_t> last_use(slots_, 0);
    for (driver::Split::Piece& p : split.pieces) {
      driver::Artefact& made = p.made;
      report_.nests += made.nests;
      report_.kernels += made.kernels;
      report_.externs += made.externs;
      auto& stages = report_.timings.stages;
      stages.insert(stages.end(), made.timings.stages.begin(), made.timings.stages.end());
      report_.from_disk_cache |= made.from_disk_cache;
      Piece piece;
      piece.inputs = std::move(p.inputs);
      piece.outputs = std::move(p.outputs);
      piece.compiled = std::make_unique<CompiledGraph>(p.graph, made, constants_, Aliases::Fresh);
      if (p.on_gpu)
        piece.replayed =
            std::make_unique<ReplayedGraph>(*piece.compiled, placements(p.graph), piece.compiled->outputs());
      for (const std::string& why : p.why)
        log_not_recorded(why + " touches memory of the CPU: recordings are split around it");
      for (uint32_t s : piece.inputs) last_use[s] = pieces_.size();
      pieces_.push_back(std::move(piece));
    }
    for (uint32_t s = num_inputs_; s < slots_; ++s)
      if (std::find(outputs_.begin(), outputs_.end(), static_cast<int32_t>(s)) == outputs_.end())
        pieces_[last_use[s]].dead.push_back(s);
  }

  bool run(PyObject* const* inputs, size_t n, PyObject** outputs, size_t m, const int64_t*) override {
    HANDLE_TH_ERRORS
    check_asked(m, outputs_.size());
    CompiledGraph::Call whole;
    unpack_inputs(given_, inputs, n, whole, num_inputs_);
    std::vector<at::Tensor> values(slots_);
    for (size_t i = 0; i < num_inputs_; ++i)
      if (whole.inputs[i]) values[i] = *whole.inputs[i];
    for (size_t i = 0; i < constant_slots_.size(); ++i) values[constant_slots_[i]] = constants_->tensors()[i];
    for (const Piece& p : pieces_) {
      CompiledGraph::Call call;
      call.holds_gil = true;
      for (uint32_t s : p.inputs) call.inputs.push_back(&values[s]);
      if (p.replayed)
        p.replayed->run(call);
      else
        p.compiled->run(call);
      for (size_t i = 0; i < p.outputs.size(); ++i) values[p.outputs[i]] = std::move(call.results[i]);
      for (uint32_t s : p.dead) values[s] = at::Tensor();
    }
    for (int32_t s : outputs_) whole.results.push_back(s < 0 ? at::Tensor() : values[static_cast<size_t>(s)]);
    give_results(whole, views_, lazy_, outputs, m);
    return true;
    END_HANDLE_TH_ERRORS_RET(false)
  }

  Report report() const override {
    Report r = report_;
    for (const Piece& p : pieces_) r.plan += p.compiled->plan().describe();
    return r;
  }

 private:
  struct Piece {
    std::vector<uint32_t> inputs, outputs;  // slots
    std::vector<uint32_t> dead;             // slots that nothing reads after it
    std::unique_ptr<CompiledGraph> compiled;
    std::unique_ptr<ReplayedGraph> replayed;  // nullptr: it is not recorded
  };
  std::vector<uint32_t> given_, constant_slots_;
  std::vector<trace::OutputView> views_;
  std::vector<trace::LazyBits> lazy_;
  std::shared_ptr<const Constants> constants_;
  size_t num_inputs_, slots_;
  std::vector<int32_t> outputs_;  // slots; -1: None
  std::vector<Piece> pieces_;
  Report report_;
};

}  // namespace

std::unique_ptr<Runnable> make_split_runnable(Captured& captured, const Options& options, bool texts) {
  driver::Dumps dumps;
  driver::Split split = driver::compile_split(captured.graph, options, texts ? &dumps : nullptr);
  if (split.pieces.empty()) return nullptr;
  return std::make_unique<SplitRunnable>(std::move(split), std::move(captured), dumps);
}

}  // namespace braze::launch
