// Compiled forward and backward behind one torch::autograd::Node.
#include "launch/training.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "launch/region_node.h"
#include "launch/runnable.h"
#include "trace/pytorch/autograd_node.h"

namespace braze::launch {
namespace {

using autodiff::Source;

// Before anything is.
void check_may_be_written(const at::Tensor& input) {
  TORCH_CHECK(!input.requires_grad() || (!input.is_leaf() && !(input.is_view() && input._base().is_leaf())),
              "a view of a leaf Variable that requires grad is being used in an in-place operation.");
}

// `input` holds new data, `now` is on the same memory and knows where they come from.
void take_history(const at::Tensor& input, const at::Tensor& now) {
  if (input.is_view()) return void(input.copy_(now));  // its base takes part
  // PyTorch moves the hook of retain_grad() along, but not to another of the new node's outputs: it is made again.
  const auto before = input.grad_fn();
  const bool retains = before && input.retains_grad();
  if (retains) {
    before->pop_retains_grad_hook(input.output_nr());
    torch::autograd::impl::get_autograd_meta(input)->retains_grad_ = false;
  }
  torch::autograd::impl::rebase_history(input, torch::autograd::impl::gradient_edge(now));
  if (retains) input.retain_grad();
  input.unsafeGetTensorImpl()->bump_version();
}

// Per tangent: the number of the node that it belongs to, which is that of one of its tangents. Results are of one node
// if a backward frees something that both need, and where nothing tells them apart: their gradients go to the same
// tensors that have a history or hooks.
std::vector<uint32_t> separate_nodes(const TrainingProgram& program, c10::ArrayRef<const at::Tensor*> inputs) {
  const trace::Gradients& g = program.gradients;
  const auto n = static_cast<uint32_t>(g.tangent_of.size());
  std::vector<uint32_t> node(n, 0);
  if (g.shared.empty()) return node;
  std::iota(node.begin(), node.end(), 0u);
  auto join = [&](uint32_t a, uint32_t b) {
    const uint32_t from = std::max(node[a], node[b]), to = std::min(node[a], node[b]);
    std::ranges::replace(node, from, to);
  };
  for (uint32_t a = 0; a < n; ++a)
    for (uint32_t b = 0; b < a; ++b)
      if (g.shared[a][b]) join(a, b);
  if (std::ranges::count(node, 0u) == n) return node;
  std::vector<std::vector<uint32_t>> leads_to(n);  // per node
  for (uint32_t k = 0; k < g.inputs.size(); ++k) {
    const at::Tensor& input = *inputs[g.inputs[k]];
    if (input.is_leaf() && torch::autograd::impl::hooks(input).empty()) continue;
    for (uint32_t t : program.parts.depends_on[k])
      if (auto& to = leads_to[node[t]]; to.empty() || to.back() != k) to.push_back(k);
  }
  for (uint32_t a = 0; a < n; ++a)
    for (uint32_t b = 0; b < a; ++b)
      if (leads_to[node[a]] == leads_to[node[b]]) join(a, b);
  return node;
}

class NodeRunnable : public TrainingRunnable {
 public:
  NodeRunnable(Captured captured, trace::Gradients gradients, const Options& options, bool texts, bool must_compile)
      : program_(
            std::make_shared<TrainingProgram>(std::move(captured), std::move(gradients), options, texts, must_compile)),
        given_(inputs_without_constants(program_->parts.forward)) {}

  bool run(PyObject* const* inputs, size_t n, PyObject** outputs, size_t m, const int64_t* symbols) override {
    HANDLE_TH_ERRORS
    const trace::Gradients& g = program_->gradients;
    BRAZE_CHECK(m == g.results,
                "the graph has " + std::to_string(g.results) + " outputs, asked for " + std::to_string(m));
    CompiledGraph::Call call;
    call.holds_gil = true;
    call.symbols = symbols;
    unpack_inputs(given_, inputs, n, call, program_->forward->inputs());
    for (auto [output, input] : program_->written) check_may_be_written(*call.inputs[input]);
    at::Tensor random_state = program_->uncompiled->replays_random() ? RandomReplay::state() : at::Tensor();
    std::vector<at::Tensor> snapshots = take_snapshots(call);
    bool replayed = false;
    if (program_->forward_replayed)
      replayed = program_->forward_replayed->run(call);
    else
      program_->forward->run(call);
    {
      c10::AutoGradMode grad(true);
      attach(call, replayed, std::move(random_state), snapshots);
    }
    wrap_outputs(call, outputs, m);
    return true;
    END_HANDLE_TH_ERRORS_RET(false)
  }

  void prepare_backward() override {
    program_->backward(std::vector<bool>(program_->gradients.tangent_of.size(), true));
  }
  void keep_uncompiled(std::unique_ptr<trace::TorchCalls> calls) override {
    program_->uncompiled->keep(std::move(calls));
  }
  TrainingReport training_report() const override { return program_->training_report(); }
  Report report() const override { return program_->report(); }

 private:
  // Of inputs that the region is about to write to, per input.
  std::vector<at::Tensor> take_snapshots(const CompiledGraph::Call& call) const {
    std::vector<at::Tensor> out;
    if (!program_->takes_snapshots) return out;
    c10::AutoGradMode no_grad(false);
    for (uint32_t i = 0; i < call.inputs.size(); ++i) {
      out.emplace_back();
      if (program_->input_sources[i].kind == TrainingProgram::InputSource::Kind::Snapshot)
        out.back() = call.inputs[i]->clone();
    }
    return out;
  }

  void attach(CompiledGraph::Call& call, bool replayed, at::Tensor random_state,
              const std::vector<at::Tensor>& snapshots) const {
    const trace::Gradients& g = program_->gradients;
    auto region = std::make_shared<RegionCall>(program_);
    region->replayed = replayed;

    size_t symbols = program_->forward->plan().size_symbols.size();
    if (symbols) region->symbols.assign(call.symbols, call.symbols + symbols);
    region->symbols.insert(region->symbols.end(), call.told.begin(), call.told.end());
    region->random_state = std::move(random_state);
    for (const Source& s : program_->saved) {
      // What the user gets will have this node as history: kept as it is, it would hold itself.
      const at::Tensor& t = s.kind == Source::Kind::Input ? *call.inputs[s.index] : call.results[s.index];
      region->save(s.kind == Source::Kind::Saved && s.index < g.outputs ? pytorch::without_history(t) : t);
    }
    for (uint32_t i : given_)
      region->hold_input(i, snapshots.empty() || !snapshots[i].defined() ? *call.inputs[i] : snapshots[i]);
    const auto [first_drawn, num_drawn] = program_->drawn;
    for (size_t i = 0; i < num_drawn; ++i) region->drawn.push_back(call.results[first_drawn + i]);
    region->finish();
    set_lazy(call, program_->lazy);
    make_nodes(call, region);
    for (auto [output, input] : program_->written) take_history(*call.inputs[input], call.results[output]);
    for (uint32_t i : program_->parts.read_inputs) region->watch(*call.inputs[i]);
    for (uint32_t i : program_->parts.read_outputs) region->watch(call.results[i]);
    make_views(call, program_->views, program_->lazy);
  }

  // The results' histories.
  void make_nodes(CompiledGraph::Call& call, const std::shared_ptr<RegionCall>& region) const {
    const trace::Gradients& g = program_->gradients;
    const std::vector<std::vector<uint32_t>>& depends_on = program_->parts.depends_on;
    const std::vector<uint32_t> node_of = separate_nodes(*program_, call.inputs);
    for (uint32_t n = 0; n < node_of.size(); ++n) {
      std::vector<uint32_t> tangents, gradients;
      for (uint32_t t = 0; t < node_of.size(); ++t)
        if (node_of[t] == n) tangents.push_back(t);
      if (tangents.empty()) continue;
      torch::autograd::edge_list edges;
      for (uint32_t k = 0; k < g.inputs.size(); ++k) {
        if (tangents.size() < node_of.size() &&
            std::ranges::none_of(depends_on[k], [&](uint32_t t) { return node_of[t] == n; }))
          continue;
        gradients.push_back(k);
        edges.push_back(torch::autograd::impl::gradient_edge(*call.inputs[g.inputs[k]]));
      }
      auto node =
          pytorch::make_node<CompiledFunctionBackward>(region, tangents, std::move(gradients), std::move(edges));
      for (uint32_t t : tangents) torch::autograd::set_history(call.results[g.tangent_of[t]], node);
    }
  }

  std::shared_ptr<TrainingProgram> program_;
  std::vector<uint32_t> given_;
};

}  // namespace

std::unique_ptr<TrainingRunnable> make_training_runnable(Captured captured, trace::Gradients gradients,
                                                         const Options& options, bool texts, bool must_compile) {
  return std::make_unique<NodeRunnable>(std::move(captured), std::move(gradients), options, texts, must_compile);
}

}  // namespace braze::launch
