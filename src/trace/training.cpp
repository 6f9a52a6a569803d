// Compiled forward and backward behind one torch::autograd::Node.
#include <ATen/ops/alias.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "autodiff/specialise.h"
#include "base/check.h"
#include "base/strict.h"
#include "driver/fallback.h"
#include "runtime/heap.h"
#include "runtime/pool.h"
#include "trace/autograd_node.h"
#include "trace/cuda_graph.h"
#include "trace/dual_number.h"
#include "trace/extern.h"
#include "trace/joint.h"
#include "trace/replay.h"
#include "trace/runnable.h"
#include "trace/training.h"

namespace braze::trace {
namespace {

namespace py = pybind11;
using autodiff::Source;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Below a transform of functions, or a dual number: PyTorch's operators know what to do with it, compiled code does not.
bool is_transformed(const at::Tensor& t) {
  if (!t.defined()) return false;
  return !t.has_storage() || has_tangent(t.unsafeGetTensorImpl());
}

// The backward for one set of outputs that have gradients.
struct Backward {
  struct Input {
    Source::Kind kind;
    uint32_t index;  // Input and Saved: among the node's saved values; else as in Source
  };
  std::unique_ptr<CompiledGraph> graph;
  std::unique_ptr<ReplayedGraph> replayed;
  std::vector<Input> inputs;
  mutable std::atomic<bool> ran = false;
};

constexpr size_t kWorthGivingBack = size_t{32} << 20;

// Results with gradients, or what is kept for the backward, are functions of what an input held before it is written to.
bool reads_overwritten(const graph::Graph& forward, const Gradients& gradients) {
  if (forward.writebacks.empty()) return false;
  std::vector<bool> from(forward.values().size());
  for (const graph::Writeback& w : forward.writebacks) from[w.input.index] = true;
  for (const graph::Node& n : forward.nodes()) {
    bool any = false;
    graph::Graph::for_each_operand(n, [&](graph::ValueId v) { any |= from[v.index]; });
    for (graph::ValueId v : n.outputs)
      if (v.valid() && any) from[v.index] = true;
  }
  auto is = [&](size_t output) { return forward.outputs[output].valid() && from[forward.outputs[output].index]; };
  bool any = std::any_of(gradients.tangent_of.begin(), gradients.tangent_of.end(), is);
  for (size_t i = gradients.outputs; i < forward.outputs.size(); ++i) any |= is(i);
  return any;
}

// All that does not change from call to call; nodes that are still to be differentiated share it.
class Compiled {
 public:
  Compiled(Captured captured, Gradients added, const Options& options, bool texts) : options_(options), texts_(texts), gradients(std::move(added)) {
    driver::Dumps dumps;
    auto random = std::make_unique<RandomReplay>(captured.graph, options);
    driver::Training made = driver::compile_training({std::move(captured.graph), gradients.outputs, gradients.tangents}, options, texts ? &dumps : nullptr);
    parts = std::move(made.parts);
    reads_overwritten_ = reads_overwritten(parts.forward, gradients);
    if (parts.random && random->possible()) replay = std::move(random);
    constants_ = std::make_shared<Constants>(std::move(captured.constants));
    report = {made.forward.nests, made.forward.kernels, made.forward.externs, made.forward.from_disk_cache, std::move(made.forward.timings), {},
              std::move(dumps.graph), std::move(dumps.lowered), std::move(dumps.scheduled), std::move(dumps.kernels)};
    training.saved_bytes = parts.saved_bytes;
    training.partition = parts.report();
    forward = std::make_unique<CompiledGraph>(parts.forward, made.forward, constants_, Aliases::Fresh, std::move(captured.write_counts), parts.bound);
    if (options.cuda_graphs) forward_replayed = std::make_unique<ReplayedGraph>(*forward, placements(parts.forward), gradients.outputs);
    for (const Source& s : parts.sources)
      if (s.kind == Source::Kind::Input || s.kind == Source::Kind::Saved) saved.push_back(s);
    for (uint32_t i : gradients.tangent_of)
      if (const auto& value = parts.forward.value(parts.forward.outputs[i]); i >= gradients.results && !value.node.valid()) written.emplace_back(i, value.index);
  }

  // Compiled when it is asked for. Thread-safe; needs no GIL.
  const Backward& backward(const std::vector<bool>& given) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& known = backwards_[given];
    if (known) return *known;
    autodiff::Backward part = autodiff::specialise(parts, given);
    driver::Dumps dumps;
    driver::Artefact made = compile_backward(part.graph, texts_ ? &dumps : nullptr);
    report.source += dumps.kernels;
    training.backward_kernels += made.kernels;
    training.backward_externs += made.externs;
    report.kernels += made.kernels;
    report.externs += made.externs;
    report.nests += made.nests;
    for (auto& [stage, seconds] : made.timings.stages) report.timings.stages.emplace_back("backward " + stage, seconds);
    auto fresh = std::make_unique<Backward>();
    fresh->graph = std::make_unique<CompiledGraph>(part.graph, made, constants_, Aliases::Shared);
    std::vector<uint32_t> slot(parts.sources.size());
    uint32_t next = 0;
    for (size_t i = 0; i < slot.size(); ++i) {
      const Source& s = parts.sources[i];
      slot[i] = s.kind == Source::Kind::Input || s.kind == Source::Kind::Saved ? next++ : s.index;
    }
    for (uint32_t i : part.inputs) fresh->inputs.push_back({parts.sources[i].kind, slot[i]});
    if (options_.cuda_graphs) fresh->replayed = std::make_unique<ReplayedGraph>(*fresh->graph, backward_placements(part), 0);
    known = std::move(fresh);
    return *known;
  }

  void keep_uncompiled(std::unique_ptr<Tracer> tracer) {
    differentiable(*tracer).forget_inputs();
    tracer_ = std::move(tracer);
  }

  // Gradients of the inputs that require grad, with histories if create_graph: by PyTorch, through the torch-level graph. `region`: the
  // inputs without constants; `symbols`, `random_state`: of the forward's call.
  variable_list uncompiled_gradients(const variable_list& region, const std::vector<int64_t>& symbols, const at::Tensor& random_state, const variable_list& tangents,
                                     bool create_graph) {
    if (parts.random && !replay)
      throw std::runtime_error("braze: a compiled region that draws random numbers is differentiated with create_graph=True or batched gradients: it cannot be run again");
    if (reads_overwritten_)
      throw std::runtime_error("braze: a compiled region that computes with what its inputs held before it wrote to them is differentiated with create_graph=True or batched gradients: it cannot be run again");
    variable_list outputs;
    {
      pybind11::gil_scoped_acquire gil;
      if (!module_) {
        module_ = tracer_ ? tracer_->graph_module() : nullptr;
        if (!module_) {
          if (PyErr_Occurred()) throw_python_error();
          throw std::runtime_error("braze: a compiled region is differentiated with create_graph=True or batched gradients, for which it is not prepared");
        }
        tracer_.reset();
      }
      size_t inputs = parts.forward.inputs.size(), given = 0, constant = 0;
      std::vector<bool> overwritten(inputs);
      for (const graph::Writeback& w : parts.forward.writebacks) overwritten[parts.forward.value(w.input).index] = true;
      py::tuple args(symbols.size() + inputs);
      for (size_t i = 0; i < symbols.size(); ++i) args[i] = py::int_(symbols[i]);
      for (size_t i = 0; i < inputs; ++i) {
        const at::Tensor& input = parts.forward.inputs[i].kind == graph::InputKind::Constant ? constants_->tensors()[constant++] : region[given++];
        args[symbols.size() + i] = py::reinterpret_steal<py::object>(THPVariable_Wrap(overwritten[i] ? input.detach().clone() : input));
      }
      py::object result = run_module(args, symbols, random_state);
      if (!result) throw_python_error();
      py::sequence sequence = result;
      for (size_t i = 0; i < sequence.size(); ++i) {
        py::object item = sequence[i];
        outputs.push_back(THPVariable_Check(item.ptr()) ? THPVariable_Unpack(item.ptr()) : at::Tensor());
      }
    }
    torch::autograd::edge_list starts, ends;
    variable_list from;
    for (size_t t = 0; t < tangents.size(); ++t) {
      if (!tangents[t].defined()) continue;
      starts.push_back(torch::autograd::impl::gradient_edge(source_of_tangent(outputs, gradients.tangent_of[t])));
      from.push_back(tangents[t]);
    }
    size_t next = 0;
    std::vector<size_t> number(parts.forward.inputs.size());
    for (size_t i = 0; i < number.size(); ++i)
      if (parts.forward.inputs[i].kind != graph::InputKind::Constant) number[i] = next++;
    for (uint32_t i : gradients.inputs) ends.push_back(torch::autograd::impl::gradient_edge(region[number[i]]));
    if (starts.empty()) return variable_list(ends.size());
    return torch::autograd::Engine::get_default_engine().execute(starts, from, /*keep_graph=*/true, create_graph,
                                                                 /*accumulate_grad=*/false, ends);
  }

  // Nodes are deleted with and without the GIL; what is Python's needs it.
  ~Compiled() {
    if (!Py_IsInitialized()) {
      (void)tracer_.release();
      return;
    }
    PyGILState_STATE gil = PyGILState_Ensure();
    tracer_.reset();
    Py_CLEAR(module_);
    PyGILState_Release(gil);
  }

  TrainingReport current_training() {
    std::lock_guard<std::mutex> lock(mutex_);
    return training;
  }

  Report current_report() {
    std::lock_guard<std::mutex> lock(mutex_);
    Report r = report;
    r.plan = forward->plan().describe();
    for (auto& [given, b] : backwards_) r.plan += "backward " + b->graph->plan().describe();
    return r;
  }

 private:
  // What a replayed forward saved lies where it lay before, as parameters do.
  std::vector<Placement> backward_placements(const autodiff::Backward& part) const {
    std::vector<Placement> out;
    for (uint32_t i : part.inputs) {
      const Source& s = parts.sources[i];
      bool stays = s.kind == Source::Kind::Constant || (s.kind == Source::Kind::Saved && s.index >= gradients.outputs) ||
                   (s.kind == Source::Kind::Input && parts.forward.inputs[s.index].kind != graph::InputKind::Argument);
      out.push_back(stays ? Placement::Stays : Placement::Copied);
    }
    return out;
  }

  // The forward is over: where compiling the backward fails, PyTorch's own operators are called one by one.
  driver::Artefact compile_backward(const graph::Graph& graph, driver::Dumps* dumps) const {
    try {
      return driver::compile(graph, options_, dumps, /*owns_inputs=*/true);
    } catch (const std::exception& e) {
      if (strict()) throw;
      std::fprintf(stderr, "braze: internal failure in the backward of a compiled region, which runs uncompiled: %s\n", e.what());
      return driver::compile_to_calls(graph, options_, /*owns_inputs=*/true);
    }
  }

  // The torch-level graph on the random values of the call.
  py::object run_module(const py::tuple& args, const std::vector<int64_t>& symbols, const at::Tensor& random_state) {
    if (!replay) return py::reinterpret_steal<py::object>(PyObject_CallObject(module_, args.ptr()));
    if (options_.rng != Rng::Philox) {
      RandomReplay::Rewound rewound(random_state);
      return py::reinterpret_steal<py::object>(PyObject_CallObject(module_, args.ptr()));
    }
    py::list values;
    for (const at::Tensor& t : replay->draw(random_state, symbols)) values.append(t);
    py::object run = py::module_::import("braze._replay").attr("run");
    return py::reinterpret_steal<py::object>(PyObject_CallFunctionObjArgs(run.ptr(), module_, args.ptr(), values.ptr(), nullptr));
  }

  // Output `number` of the forward graph among what the torch-level graph gave: itself, or the tensor that several outputs are views of.
  at::Tensor source_of_tangent(const variable_list& outputs, uint32_t number) const {
    if (number < outputs.size()) return outputs[number];
    for (const Gradients::View& v : gradients.views)
      if (!v.of_input && v.base == number && v.differentiable) return outputs[v.output].is_view() ? at::Tensor(outputs[v.output]._base()) : outputs[v.output];
    throw std::runtime_error("braze: a compiled region whose outputs share memory is differentiated with create_graph=True or batched gradients");
  }

  Options options_;
  bool texts_;
  bool reads_overwritten_ = false;
  std::shared_ptr<const Constants> constants_;
  std::unique_ptr<Tracer> tracer_;
  PyObject* module_ = nullptr;  // the torch-level graph, made when it is asked for
  std::mutex mutex_;
  std::map<std::vector<bool>, std::unique_ptr<Backward>> backwards_;

 public:
  Gradients gradients;
  autodiff::Partition parts;
  std::unique_ptr<CompiledGraph> forward;
  std::unique_ptr<ReplayedGraph> forward_replayed;
  std::unique_ptr<RandomReplay> replay;  // of what it draws
  std::vector<Source> saved;  // what a node holds, in order
  std::vector<std::pair<uint32_t, uint32_t>> written;  // outputs that stand for what was written to inputs
  Report report;
  TrainingReport training;
};

// Memory that the program's backward reads: it must be as it was.
struct Watched {
  c10::VariableVersion version;
  uint32_t expected;
  std::string what;
};

class CompiledFunctionBackward : public Node {
 public:
  CompiledFunctionBackward(std::shared_ptr<Compiled> compiled, torch::autograd::edge_list&& edges)
      : Node(std::move(edges)), compiled_(std::move(compiled)) {}

  std::string name() const override { return "CompiledFunctionBackward"; }
  void will_release_variables() override { releasing_ = true; }
  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    releasing_ = false;
    for (size_t i = 0; i < used_.size(); ++i)
      if (used_[i]) drop(i);
  }

  variable_list apply(variable_list&& tangents) override {
    std::lock_guard<std::mutex> lock(mutex_);
    if (c10::GradMode::is_enabled() || std::any_of(tangents.begin(), tangents.end(), is_transformed)) return apply_uncompiled(std::move(tangents));
    std::vector<bool> given;
    for (const at::Tensor& t : tangents) given.push_back(t.defined());
    const Backward& backward = compiled_->backward(given);
    for (const Backward::Input& in : backward.inputs)
      if ((in.kind == Source::Kind::Input || in.kind == Source::Kind::Saved) && dropped_[in.index])
        throw std::runtime_error(torch::autograd::ERR_BACKWARD_TWICE);
    for (const Watched& w : watched)
      if (w.version.current_version() != w.expected)
        throw std::runtime_error("one of the variables needed for gradient computation has been modified by an inplace operation: [" + w.what +
                                 "] is at version " + std::to_string(w.version.current_version()) + "; expected version " + std::to_string(w.expected) + " instead.");
    std::vector<at::Tensor> owned(backward.inputs.size());
    CompiledGraph::Call call;
    call.inputs.resize(owned.size(), nullptr);
    for (size_t i = 0; i < owned.size(); ++i) {
      const Backward::Input& in = backward.inputs[i];
      if (in.kind == Source::Kind::Constant) continue;
      if (in.kind == Source::Kind::Tangent) {
        owned[i] = tangents[in.index].defined() ? std::move(tangents[in.index]) : input_metadata(in.index).zeros_like();
      } else {
        owned[i] = saved[in.index].unpack();
        if (releasing_) drop(in.index);
        used_[in.index] = true;
      }
      call.inputs[i] = &owned[i];
    }
    call.owned = owned.data();
    if (!releasing_) call.owned = nullptr;
    call.symbols = symbols.data();
    if (replayed) backward.replayed->run(call);
    else backward.graph->run(call);
    if (!backward.ran.exchange(true)) {
      runtime::trim_heap(kWorthGivingBack);
      runtime::trim_pool();
    }
    const Gradients& g = compiled_->gradients;
    variable_list out(g.inputs.size());
    for (size_t k = 0; k < out.size(); ++k) out[k] = std::move(call.results[k]);
    return out;
  }

  // The region again, eagerly, so that what it gives has a history of its own.
  variable_list apply_uncompiled(variable_list&& tangents) {
    variable_list inputs;
    for (auto& weak : region_inputs) {
      auto impl = weak.lock();
      if (!impl) throw std::runtime_error("braze: a compiled region is differentiated with create_graph=True or batched gradients, but its inputs are gone: keep them alive");
      inputs.emplace_back(std::move(impl));
    }
    bool again = c10::GradMode::is_enabled();
    c10::AutoGradMode on(true);
    size_t of_region = compiled_->forward->plan().size_symbols.size();
    return compiled_->uncompiled_gradients(inputs, {symbols.begin(), symbols.begin() + of_region}, random_state, tangents, again);
  }

  void prepare(size_t count) {
    used_.assign(count, false);
    dropped_.assign(count, false);
  }
  bool replayed = false;  // the forward was: what it saved lies where the backward's recording expects it
  std::vector<SavedVariable> saved;
  std::vector<Watched> watched;
  std::vector<int64_t> symbols;  // values of the backward's size symbols
  at::Tensor random_state;       // of the generator when the region was called
  variable_list scalars;         // inputs that may be a float of the program's, which nobody else keeps
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> region_inputs;  // that are no constants

 private:
  void drop(size_t i) {
    saved[i].reset_data();
    dropped_[i] = true;
  }

  std::shared_ptr<Compiled> compiled_;
  std::vector<bool> used_, dropped_;
  bool releasing_ = false;
};

std::string describe(const at::Tensor& t) {
  std::string out = t.toString() + " [";
  for (int64_t d = 0; d < t.dim(); ++d) out += (d ? ", " : "") + std::to_string(t.size(d));
  return out + "]";
}

// The same memory and version counter, without history.
at::Tensor without_history(const at::Tensor& t) {
  return at::Tensor(t.unsafeGetTensorImpl()->shallow_copy_and_detach(t.unsafeGetTensorImpl()->version_counter(), false));
}

// `input` holds new data, `now` is on the same memory and knows where they come from.
void take_history(const at::Tensor& input, const at::Tensor& now) {
  if (input.is_view()) return void(input.copy_(now));  // its base takes part
  torch::autograd::impl::rebase_history(input, torch::autograd::impl::gradient_edge(now));
  input.unsafeGetTensorImpl()->bump_version();
}

class NodeRunnable : public TrainingRunnable {
 public:
  NodeRunnable(Captured captured, Gradients gradients, const Options& options, bool texts)
      : compiled_(std::make_shared<Compiled>(std::move(captured), std::move(gradients), options, texts)), given_(inputs_without_constants(compiled_->parts.forward)) {}

  bool run(PyObject* const* inputs, size_t n, PyObject** outputs, size_t m, const int64_t* symbols) override {
    HANDLE_TH_ERRORS
    const Gradients& g = compiled_->gradients;
    BRAZE_CHECK(m == g.results, "the graph has " + std::to_string(g.results) + " outputs, asked for " + std::to_string(m));
    CompiledGraph::Call call;
    call.holds_gil = true;
    call.symbols = symbols;
    unpack_inputs(given_, inputs, n, call, compiled_->forward->inputs());
    at::Tensor random_state = compiled_->replay ? RandomReplay::state() : at::Tensor();
    bool replayed = false;
    if (compiled_->forward_replayed) replayed = compiled_->forward_replayed->run(call);
    else compiled_->forward->run(call);
    {
      c10::AutoGradMode grad(true);
      attach(call, replayed, std::move(random_state));
    }
    wrap_outputs(call, outputs, m);
    return true;
    END_HANDLE_TH_ERRORS_RET(false)
  }

  void prepare_backward() override { compiled_->backward(std::vector<bool>(compiled_->gradients.tangent_of.size(), true)); }
  void keep_uncompiled(std::unique_ptr<Tracer> tracer) override { compiled_->keep_uncompiled(std::move(tracer)); }
  TrainingReport training_report() const override { return compiled_->current_training(); }
  Report report() const override { return compiled_->current_report(); }

 private:
  void attach(CompiledGraph::Call& call, bool replayed, at::Tensor random_state) const {
    const Gradients& g = compiled_->gradients;
    torch::autograd::edge_list edges;
    edges.reserve(g.inputs.size());
    for (uint32_t i : g.inputs) edges.push_back(torch::autograd::impl::gradient_edge(*call.inputs[i]));
    auto node = make_node<CompiledFunctionBackward>(compiled_, std::move(edges));
    node->replayed = replayed;

    size_t symbols = compiled_->forward->plan().size_symbols.size();
    if (symbols) node->symbols.assign(call.symbols, call.symbols + symbols);
    node->symbols.insert(node->symbols.end(), call.told.begin(), call.told.end());
    node->random_state = std::move(random_state);
    node->region_inputs.reserve(given_.size());
    for (uint32_t i : given_) {
      node->region_inputs.emplace_back(call.inputs[i]->getIntrusivePtr());
      if (call.inputs[i]->dim() == 0 && !call.inputs[i]->requires_grad()) node->scalars.push_back(*call.inputs[i]);
    }
    node->prepare(compiled_->saved.size());
    node->saved.reserve(compiled_->saved.size());
    for (const Source& s : compiled_->saved) {
      if (s.kind == Source::Kind::Input) {
        node->saved.emplace_back(*call.inputs[s.index], false);
      } else {
        // What the user gets will have this node as history: kept as it is, it would hold itself.
        const at::Tensor& t = call.results[s.index];
        node->saved.emplace_back(s.index < g.outputs ? without_history(t) : t, false);
      }
    }
    auto watch = [&](const at::Tensor& t) {
      if (t.is_inference()) return;
      const c10::VariableVersion& version = t.unsafeGetTensorImpl()->version_counter();
      node->watched.push_back({version, version.current_version(), describe(t)});
    };
    for (uint32_t i : g.tangent_of) torch::autograd::set_history(call.results[i], node);
    for (auto [output, input] : compiled_->written) take_history(*call.inputs[input], call.results[output]);
    for (uint32_t i : compiled_->parts.read_inputs) watch(*call.inputs[i]);
    for (uint32_t i : compiled_->parts.read_outputs) watch(call.results[i]);
    for (const Gradients::View& v : g.views) {
      const at::Tensor& base = v.of_input ? *call.inputs[v.base] : call.results[v.base];
      at::Tensor& result = call.results[v.output];
      BRAZE_CHECK(result.is_alias_of(base), "an output is not on the memory of its base");
      c10::AutoGradMode mode(v.differentiable);
      at::Tensor view = base.sizes() == result.sizes() && base.strides() == result.strides() && base.storage_offset() == result.storage_offset()
                            ? at::alias(base)
                            : base.as_strided(result.sizes(), result.strides(), result.storage_offset());
      result = v.differentiable ? std::move(view) : view.detach();
      if (v.differentiable && v.one_of_several) torch::autograd::impl::get_view_autograd_meta(result)->set_creation_meta(torch::autograd::CreationMeta::MULTI_OUTPUT_NODE);
    }
  }

  std::shared_ptr<Compiled> compiled_;
  std::vector<uint32_t> given_;
};

}  // namespace

std::unique_ptr<TrainingRunnable> make_training_runnable(Captured captured, Gradients gradients, const Options& options, bool texts) {
  return std::make_unique<NodeRunnable>(std::move(captured), std::move(gradients), options, texts);
}

}  // namespace braze::trace
