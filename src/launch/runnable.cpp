// A compiled graph without gradients on Python objects.
#include "launch/runnable.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include "base/check.h"
#include "launch/cuda_graph.h"
#include "launch/frozen_runnable.h"
#include "launch/split_runnable.h"
#include "launch/tuned_layout.h"

namespace braze::launch {

void unpack_inputs(const std::vector<uint32_t>& given, PyObject* const* objects, size_t n, CompiledGraph::Call& call,
                   size_t inputs) {
  call.inputs.resize(inputs, nullptr);
  if (n == inputs) {
    for (size_t i = 0; i < n; ++i) call.inputs[i] = &THPVariable_Unpack(objects[i]);
    return;
  }
  BRAZE_CHECK(n == given.size(),
              "the graph takes " + std::to_string(given.size()) + " inputs, got " + std::to_string(n));
  for (size_t i = 0; i < n; ++i) call.inputs[given[i]] = &THPVariable_Unpack(objects[i]);
}

void wrap_outputs(CompiledGraph::Call& call, PyObject** outputs, size_t m) {
  for (size_t i = 0; i < m; ++i) {
    outputs[i] = call.results[i].defined() ? THPVariable_Wrap(call.results[i]) : Py_NewRef(Py_None);
    if (outputs[i]) continue;
    while (i > 0) Py_CLEAR(outputs[--i]);
    throw python_error();
  }
}

void check_asked(size_t asked, size_t outputs) {
  BRAZE_CHECK(asked <= outputs,
              "the graph has " + std::to_string(outputs) + " outputs, asked for " + std::to_string(asked));
}

void give_results(CompiledGraph::Call& call, const std::vector<trace::OutputView>& views,
                  const std::vector<trace::LazyBits>& lazy, PyObject** outputs, size_t m) {
  set_lazy(call, lazy);
  make_views(call, views, lazy);
  wrap_outputs(call, outputs, m);
}

Report report_of(driver::Artefact& made, driver::Dumps dumps) {
  return {made.nests,
          made.kernels,
          made.externs,
          made.from_disk_cache,
          std::move(made.timings),
          {},
          std::move(dumps.passes),
          std::move(dumps.graph),
          std::move(dumps.lowered),
          std::move(dumps.scheduled),
          std::move(dumps.kernels)};
}

void throw_python_error() {
  python_error e;
  e.persist();
  throw e;
}

std::vector<uint32_t> inputs_without_constants(const graph::Graph& graph) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < graph.inputs.size(); ++i)
    if (graph.inputs[i].kind != graph::InputKind::Constant) out.push_back(i);
  return out;
}

namespace {

class InferenceRunnable : public Runnable {
 public:
  InferenceRunnable(Captured captured, const Options& options, bool texts)
      : given_(inputs_without_constants(captured.graph)),
        views_(std::move(captured.views)),
        lazy_(std::move(captured.lazy)) {
    driver::Dumps dumps;
    driver::Artefact made = driver::compile(captured.graph, options, texts ? &dumps : nullptr);
    report_ = report_of(made, std::move(dumps));
    compiled_ = std::make_unique<CompiledGraph>(captured.graph, made,
                                                std::make_shared<Constants>(std::move(captured.constants)),
                                                Aliases::Fresh, std::move(captured.write_counts));
    if (options.cuda_graphs)
      replayed_ = std::make_unique<ReplayedGraph>(*compiled_, placements(captured.graph), compiled_->outputs());
  }

  bool run(PyObject* const* inputs, size_t n, PyObject** outputs, size_t m, const int64_t* symbols) override {
    HANDLE_TH_ERRORS
    check_asked(m, compiled_->outputs());
    CompiledGraph::Call call;
    call.holds_gil = true;
    call.symbols = symbols;
    unpack_inputs(given_, inputs, n, call, compiled_->inputs());
    if (replayed_)
      replayed_->run(call);
    else
      compiled_->run(call);
    give_results(call, views_, lazy_, outputs, m);
    return true;
    END_HANDLE_TH_ERRORS_RET(false)
  }

  Report report() const override {
    Report r = report_;
    r.plan = compiled_->plan().describe();
    return r;
  }

 private:
  std::vector<uint32_t> given_;
  std::vector<trace::OutputView> views_;
  std::vector<trace::LazyBits> lazy_;
  std::unique_ptr<CompiledGraph> compiled_;
  std::unique_ptr<ReplayedGraph> replayed_;
  Report report_;
};

}  // namespace

std::unique_ptr<Runnable> make_laid_out(Captured captured, const Options& options, bool texts) {
  if (options.freezing) {
    if (auto frozen = make_frozen_runnable(captured, options, texts)) return frozen;
    Options plain = options;
    plain.freezing = false;
    return make_laid_out(std::move(captured), plain, texts);
  }
  if (options.cuda_graphs)
    if (auto split = make_split_runnable(captured, options, texts)) return split;
  return std::make_unique<InferenceRunnable>(std::move(captured), options, texts);
}

std::unique_ptr<Runnable> make_runnable(Captured captured, const Options& options, bool texts) {
  if (auto tuned = make_tuned_layout(captured, options, texts)) return tuned;
  return make_laid_out(std::move(captured), options, texts);
}

}  // namespace braze::launch
