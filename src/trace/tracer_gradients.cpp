#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "graph/copied_view.h"
#include "trace/fake_tensor.h"
#include "trace/kernel_launches.h"
#include "trace/pytorch/python_function.h"
#include "trace/shared_histories.h"
#include "trace/tracer_impl.h"

namespace braze::trace {

namespace {

// Memory of inputs and outputs that nodes from `first` on, the backward, read of what was computed before, and that
// checkpoints keep.
void find_reads(const Recorder& recorder, const graph::Graph& graph, size_t first,
                const std::vector<graph::ValueId>& gradients, Gradients& out) {
  std::vector<bool> read(graph.values().size());
  auto note = [&](graph::ValueId v) {
    graph::NodeId by = graph.value(v).node;
    if (!by.valid() || by.index < first) read[graph::memory_root(graph, v).index] = true;
  };
  for (size_t i = first; i < graph.nodes().size(); ++i)
    graph::Graph::for_each_operand(graph.node(graph::NodeId(i)), note);
  for (graph::ValueId v : gradients)
    if (v.valid()) note(v);
  for (const at::Tensor& held : recorder.checkpoints.held())
    if (graph::ValueId v = recorder.known_value(*as_fake(held)); v.valid()) note(v);
  // What was written to an input is in its memory.
  for (const graph::Writeback& w : graph.writebacks)
    if (read[graph::memory_root(graph, w.value).index]) read[w.input.index] = true;
  for (uint32_t i = 0; i < graph.inputs.size(); ++i)
    if (read[graph.inputs[i].value.index] &&
        std::find(out.tangents.begin(), out.tangents.end(), i) == out.tangents.end())
      out.read_inputs.push_back(i);
  for (uint32_t k = 0; k < out.outputs; ++k)
    if (graph::ValueId v = graph.outputs[k]; v.valid() && read[graph::memory_root(graph, v).index])
      out.read_outputs.push_back(k);
}

}  // namespace

bool is_of_custom_function(const at::Tensor& t) {
  if (!t.requires_grad() || !t.is_view()) return false;
  auto end = torch::autograd::impl::gradient_edge(at::Tensor(t._base())).function;
  for (auto n = t.grad_fn(); n && n != end; n = n->num_outputs() ? n->next_edge(0).function : nullptr)
    if (pytorch::is_python_function(n)) return true;
  return false;
}

// What the backward starts from: outputs that are no views of others, and what they are views of.
std::vector<at::Tensor> TracerImpl::differentiable_outputs(graph::Graph& graph, const std::vector<OutputView>& views,
                                                           Gradients& out) {
  std::vector<at::Tensor> roots;
  std::vector<bool> is_view(out.results);
  for (const OutputView& v : views) is_view[v.output] = is_view[v.output] || v.made != OutputView::Made::WithVersionOf;
  std::unordered_set<uint32_t> seen;  // roots of the memory of outputs that are no views
  for (uint32_t i = 0; i < out.results; ++i) {
    if (outputs_[i] == Py_None || !graph.outputs[i].valid()) continue;
    const at::Tensor& t = THPVariable_Unpack(outputs_[i]);
    if (is_of_custom_function(t)) {
      roots.push_back(t);
      out.tangent_of.push_back(i);
      continue;
    }
    if (!t.requires_grad()) continue;
    if (t.is_leaf() && !by_fake_.count(outputs_[i]) && !is_view[i])
      throw Unsupported(Reason::UnsupportedTensor, "an output is a leaf that was made inside and requires grad");
    if (is_view[i]) {  // it is made anew when it is handed out
      if (!torch::autograd::impl::hooks(t).empty())
        throw Unsupported(Reason::IntermediateHistory, "a hook on a view that is returned");
      continue;
    }
    graph::ValueId root = graph::memory_root(graph, graph.outputs[i]);
    bool of_input = !graph.value(root).node.valid();
    if (graph.type(graph.outputs[i]).dtype != graph.type(root).dtype)
      throw Unsupported(Reason::UnsupportedMutation,
                        "outputs with gradients are views of one tensor as different dtypes");
    if (of_input || !seen.insert(root.index).second)
      throw Unsupported(Reason::UnsupportedMutation,
                        "outputs with gradients share memory in a way that views do not express");
    roots.push_back(t);
    out.tangent_of.push_back(i);
  }
  for (size_t k = 0; k < hidden_bases_.size(); ++k) {
    if (!hidden_bases_[k].requires_grad()) continue;
    roots.push_back(hidden_bases_[k]);
    out.tangent_of.push_back(static_cast<uint32_t>(out.results + k));
  }
  // The program writes the data; as an output an input stands for what it then holds.
  for (size_t i : written_with_history_) {
    out.tangent_of.push_back(static_cast<uint32_t>(graph.outputs.size()));
    graph.outputs.push_back(recorder_->use_slot(lifted_[i].slot));
    roots.push_back(THPVariable_Unpack(lifted_[i].fake));
  }
  return roots;
}

Gradients TracerImpl::differentiate(Captured& captured) {
  BRAZE_CHECK(captured.needs_grad, "differentiate() without need");
  recorder_->reopen();
  struct Close {
    Recorder& recorder;
    ~Close() { recorder.close(); }
  } close{*recorder_};
  graph::Graph& graph = recorder_->graph();
  graph = std::move(captured.graph);
  struct HandBack {
    graph::Graph &from, &to;
    ~HandBack() { to = std::move(from); }
  } hand_back{graph, captured.graph};
  // Backwards of the user's are no calls of the torch-level graph.
  struct Inside {
    int& depth;
    ~Inside() { --depth; }
  } inside{++host_depth_};
  // What the backward decided on sizes was put into what the torch-level graph holds, wherever it ended.
  try {
    Gradients out = add_backward(captured, graph);
    finish_sizes(captured, graph);
    return out;
  } catch (const Unsupported&) {
    finish_sizes(captured, graph);
    throw;
  }
}

torch::autograd::Edge TracerImpl::gradient_leaf(const Lifted& l) {
  return l.outer.is_valid() ? l.outer : torch::autograd::impl::gradient_edge(THPVariable_Unpack(l.fake));
}

// Inputs that require grad, and where their gradients are taken.
torch::autograd::edge_list TracerImpl::gradient_leaves(Gradients& out) const {
  torch::autograd::edge_list leaves;
  std::unordered_map<uint32_t, uint32_t> input_of;
  for (size_t i = 0; i < recorder_->input_slots.size(); ++i)
    input_of[recorder_->input_slots[i]] = static_cast<uint32_t>(i);
  for (const Lifted& l : lifted_) {
    auto it = input_of.find(l.slot);
    if (!recorder_->slots[l.slot].real.requires_grad() || it == input_of.end()) continue;
    leaves.push_back(gradient_leaf(l));
    out.inputs.push_back(it->second);
  }
  return leaves;
}

Gradients TracerImpl::add_backward(Captured& captured, graph::Graph& graph) {
  Gradients out;
  out.results = outputs_.size();
  std::vector<at::Tensor> roots = differentiable_outputs(graph, captured.views, out);
  out.shared = shared_histories(roots);
  out.outputs = graph.outputs.size();
  for (uint32_t slot : recorder_->input_slots)
    if (recorder_->slots[slot].kind == graph::InputKind::Constant && recorder_->slots[slot].real.requires_grad())
      throw Unsupported(Reason::UnsupportedTensor, "a tensor that requires grad is met in the middle of a call");
  torch::autograd::edge_list leaves = gradient_leaves(out);
  size_t inputs = recorder_->input_slots.size();
  struct Shorten {  // what a backward that could not be traced has added is no input of the forward
    std::vector<uint32_t>& slots;
    std::vector<graph::Input>& graph_inputs;
    size_t size, graph_size;
    bool failed = true;
    ~Shorten() {
      if (!failed) return;
      slots.resize(size);
      graph_inputs.resize(graph_size);
    }
  } on_failure{recorder_->input_slots, graph.inputs, inputs, graph.inputs.size()};
  auto versions = [&] {
    std::vector<uint32_t> of;
    for (const Lifted& l : lifted_)  // those of inference count no writes
      if (const at::Tensor& t = THPVariable_Unpack(l.fake); !t.is_inference()) of.push_back(t._version());
    return of;
  };
  std::vector<uint32_t> before = versions();
  JointTrace joint;
  joint.gradients.resize(leaves.size());
  size_t first = graph.nodes().size();
  if (!roots.empty()) joint = trace_backward(*recorder_, roots, leaves);
  std::vector<uint32_t> after = versions();
  if (!std::equal(before.begin(), before.end(), after.begin()))
    throw Unsupported(Reason::UnsupportedMutation, "an input is changed by the backward");
  for (size_t i = inputs; i < recorder_->input_slots.size(); ++i) {
    const auto& slot = recorder_->slots[recorder_->input_slots[i]];
    if (slot.kind != graph::InputKind::Constant)
      throw Unsupported(Reason::TraceFailed, "the backward reads an input that the forward does not");
    captured.constants.push_back(THPVariable_Wrap(slot.real));
  }
  hold_launches(graph, first, captured.constants);
  // What no gradient goes to is not held: the program may wait for its end.
  std::vector<uint32_t> all = std::exchange(out.inputs, {});
  for (size_t k = 0; k < all.size(); ++k)
    if (joint.gradients[k].valid()) out.inputs.push_back(all[k]);
  std::erase_if(joint.gradients, [](graph::ValueId g) { return !g.valid(); });
  graph.outputs.insert(graph.outputs.end(), joint.gradients.begin(), joint.gradients.end());
  out.tangents = std::move(joint.tangents);
  find_reads(*recorder_, graph, first, joint.gradients, out);
  // A parameter that no gradient goes to, as a teacher's, may be written before the backward like any buffer.
  for (uint32_t i = 0; i < inputs; ++i)
    if (graph::Input& in = graph.inputs[i];
        in.kind == graph::InputKind::Parameter && std::ranges::find(out.inputs, i) == out.inputs.end())
      in.kind = graph::InputKind::Buffer;
  on_failure.failed = false;
  return out;
}

}  // namespace braze::trace
