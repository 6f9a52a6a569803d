// The tracer behind the interface of trace.h. Its files: tracer.cpp (questions about fakes and symbols),
// tracer_lift.cpp (real tensors and integers become fakes), tracer_calls.cpp (calls under the recorder),
// tracer_finish.cpp (the end of a capture), tracer_gradients.cpp (differentiation).
#pragma once
#include <Python.h>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"
#include "trace/ambient.h"
#include "trace/fx.h"
#include "trace/joint.h"
#include "trace/recorder.h"
#include "trace/symnode.h"
#include "trace/trace.h"

namespace braze::trace {

// A result of an autograd.Function on the memory of its operand has a history that views of that memory do not have.
bool is_of_custom_function(const at::Tensor& t);

class TracerImpl final : public Tracer, public Differentiable {
 public:
  TracerImpl();
  ~TracerImpl() override;

  PyObject* lift(PyObject* real, graph::InputKind kind, const std::string& name,
                 const std::vector<SymbolicDim>& symbolic) override;
  bool is_fake(PyObject* obj) const override;
  bool has_tangent(PyObject* fake) const override;
  PyObject* real_of(PyObject* fake) const override {
    auto it = by_fake_.find(fake);
    return it == by_fake_.end() ? nullptr : lifted_[it->second].real;
  }
  void enter() override;
  void leave() override;
  PyObject* lift_int(int64_t value, sym::Range range) override;
  PyObject* known_number(PyObject* fake) override;
  bool python_kernel_raised() const override { return recorder_->python_kernel_raised; }
  PyObject* storage_offset(PyObject* fake) override;
  bool forgets_offset(PyObject* fake) override;
  void set_where(std::function<uint32_t()> where) override { recorder_->sizes()->set_where(std::move(where)); }
  bool size_expression(PyObject* sym, sym::Expr* out) override;
  void allow_numbers(bool on) override { recorder_->allow_numbers(on); }
  void refuse_open_results() override { recorder_->refuse_open_results(); }
  bool has_unbacked() const override { return recorder_->sizes()->has_unbacked(); }
  bool depends_on_data(PyObject* sym) override;
  PyObject* as_integer(PyObject* sym) override;
  void assume(PyObject* sym, const std::string& exception, const std::string& message) override;
  PyObject* call(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs,
                 const graph::Location& loc) override;
  PyObject* call_host(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs, const graph::Location& loc,
                      PyObject* noted) override;
  PyObject* call_overridden(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs,
                            const graph::Location& loc) override;
  BranchStart begin_branch(const std::vector<PyObject*>& fakes) override;
  std::string end_branch(const BranchStart& start, const std::vector<PyObject*>& fakes,
                         const std::vector<PyObject*>& results, PyObject* predicate, bool when) override;
  bool begin_checkpoint(const std::vector<PyObject*>& held, bool selective) override;
  void end_checkpoint() override { recorder_->checkpoints.end(); }
  PyObject* checkpointed_calls() override;
  void keep(size_t call, graph::Keep keep) override;
  PyObject* score_graph(const std::vector<PyObject*>& inputs, const std::vector<PyObject*>& outputs) override;
  bool has_torch_level() const override { return torch_level_; }
  void forget_history(PyObject* fake) override { without_history_.insert(fake); }
  Ambient outside() const override { return outside_; }
  void forget_inputs() override;
  PyObject* graph_module() override;
  TorchLevel torch_level() override;
  bool is_literal(PyObject* constant) const override;
  Captured finish(const std::vector<PyObject*>& outputs, std::vector<PyObject*>& inputs) override;
  Gradients differentiate(Captured& captured) override;

 private:
  struct Lifted {
    PyObject *fake, *real;  // owned
    uint32_t slot;
    at::Tensor inner;                 // the fake before any mutation
    const c10::StorageImpl* storage;  // of the functional wrapper
    torch::autograd::Edge outer;      // of a non-leaf
  };

  // The placeholders of the torch-level graph.
  std::vector<CallList::Input> call_inputs();
  // Of a torch.SymInt or SymBool of this capture; nullptr for all else.
  SizeNode* size_node(PyObject* obj) const;
  bool size_of_call(PyObject* obj, sym::Expr* out) const;  // CallList::Size
  // How often these fakes were written, and those that were lifted.
  size_t writes_of(const std::vector<PyObject*>& fakes) const;
  bool holds_fake(PyObject* obj) const;
  // Calls fn under the recorder; the torch-level graph gets a call of `noted`, if any.
  PyObject* perform(PyObject* fn, PyObject* const* args, size_t nargs, PyObject* kwargs, const graph::Location& loc,
                    PyObject* noted);
  TensorType input_type(const at::Tensor& tensor, const std::vector<SymbolicDim>& symbolic, PyObject* real);
  // Strides follow the sizes where they are those of a dense tensor; others are guarded, or symbols where `symbols`
  // (per dimension) asks for it.
  void input_strides(TensorType& type, const at::Tensor& tensor, const std::vector<const SymbolicDim*>& symbols,
                     const std::string& prefix, PyObject* real);
  void add_place(sym::Expr symbol, PyObject* tensor, int32_t dim);
  void finish_sizes(Captured& captured, graph::Graph& graph);
  void finish_offsets(Captured& captured);
  std::vector<uint32_t> write_back_mutations(graph::Graph& graph);  // see Captured::write_counts
  bool differs_in_history(const Lifted& lifted) const;
  graph::ValueId output_value(PyObject* output, bool& needs_grad);
  // The memory of an output's fake; the output carries the same bits.
  graph::ValueId memory_of_output(const FakeTensor& fake, const at::Tensor& output);
  void check_aliases(const graph::Graph& graph) const;
  std::vector<OutputView> find_views(graph::Graph& graph);
  void find_detached(const graph::Graph& graph, std::vector<OutputView>& views) const;
  void find_versions(const graph::Graph& graph, std::vector<OutputView>& views) const;
  void use_what_gradients_reach();
  void take_inputs(std::vector<PyObject*>& inputs, std::vector<PyObject*>& constants);
  Gradients add_backward(Captured& captured, graph::Graph& graph);
  std::vector<at::Tensor> differentiable_outputs(graph::Graph& graph, const std::vector<OutputView>& views,
                                                 Gradients& out);
  static torch::autograd::Edge gradient_leaf(const Lifted& l);
  torch::autograd::edge_list gradient_leaves(Gradients& out) const;

  // Of the input that the fake is, or is a view of; FakeTensor::kNoSlot: none.
  uint32_t root_slot(const FakeTensor& fake) const;

  std::shared_ptr<Recorder> recorder_;
  std::vector<Lifted> lifted_;
  std::unordered_map<PyObject*, size_t> by_real_, by_fake_;
  std::unordered_map<const c10::StorageImpl*, size_t> mutated_;  // functional storage -> lifted
  std::vector<size_t> written_with_history_;                     // lifted
  std::vector<std::unique_ptr<RecordingScope>> scopes_;
  std::vector<sym::Expr> symbols_;  // of sizes, integers and strides: what calls read
  std::vector<SizePlace> places_;
  std::vector<SizeGuard> stride_guards_;                    // strides follow the sizes
  std::unordered_map<uint32_t, sym::Expr> offset_symbols_;  // by slot
  int32_t ints_ = 0;
  std::vector<sym::Expr> graph_symbols_;
  CallList calls_;
  Ambient outside_;                       // the modes at the start of the capture
  std::vector<PyObject*> outputs_;        // owned, of finish()
  std::vector<at::Tensor> hidden_bases_;  // of views among them: outputs of the graph after those
  std::vector<PyObject*> inputs_;         // of finish()
  int host_depth_ = 0;
  bool torch_level_ = true;
  const graph::Location* location_ = nullptr;
  std::unordered_set<PyObject*> without_history_;
};

}  // namespace braze::trace
