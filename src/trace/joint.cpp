#include "trace/joint.h"

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/SequenceNumber.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "graph/shape.h"
#include "trace/graph_break.h"
#include "trace/pytorch/memory_access.h"
#include "trace/trace.h"

namespace braze::trace {
namespace {

namespace functional = at::functionalization::impl;
using graph::ValueId;

// How many threads are inside of the engine; changed under the GIL alone.
int g_traced_backwards = 0;
thread_local int t_traced_backwards = 0;

struct TracedBackward {
  TracedBackward() { ++g_traced_backwards, ++t_traced_backwards; }
  ~TracedBackward() { --g_traced_backwards, --t_traced_backwards; }
  TracedBackward(const TracedBackward&) = delete;
  TracedBackward& operator=(const TracedBackward&) = delete;
};

// A gradient has its output's sizes; it is asked for in the output's layout where that is dense.
TensorType tangent_type(sym::ExprArena& arena, const TensorType& output) {
  TensorType type = output;
  if (!graph::is_non_overlapping_and_dense(arena, type)) type.strides = contiguous_strides(arena, type.sizes);
  type.offset = arena.constant(0);
  return type;
}

[[noreturn]] void refuse(python_error& e) {
  // The engine's Python half has set the exception already; other ways leave that to us.
  if (!PyErr_Occurred()) e.restore();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Reason reason = Reason::TraceFailed;
  std::string detail = "the backward raised an exception";
  if (!is_graph_break_exception(value, &reason, &detail)) {
    PyObject* text = value ? PyObject_Str(value) : nullptr;
    const char* s = text ? PyUnicode_AsUTF8(text) : nullptr;
    if (s && pytorch::is_memory_access(s)) reason = Reason::ScalarFromTensor;
    if (s) detail += std::string(": ") + s;
    Py_XDECREF(text);
    PyErr_Clear();
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  throw Unsupported(reason, "in the backward: " + detail);
}

torch::autograd::variable_list run_engine(Recorder& recorder, const torch::autograd::edge_list& starts,
                                          const torch::autograd::variable_list& tangents,
                                          const torch::autograd::edge_list& leaves) {
  try {
    TracedBackward counted;
    pybind11::gil_scoped_release no_gil;
    return torch::autograd::Engine::get_default_engine().execute(starts, tangents, /*keep_graph=*/false,
                                                                 /*create_graph=*/false,
                                                                 /*accumulate_grad=*/false, leaves);
  } catch (python_error& e) {
    if (!recorder.failure.empty()) {
      PyErr_Clear();
      throw InternalError(std::exchange(recorder.failure, {}));
    }
    refuse(e);
  } catch (const c10::Error& e) {
    throw Unsupported(Reason::TraceFailed, std::string("in the backward: ") + e.what_without_backtrace());
  } catch (
      const pybind11::error_already_set& e) {  // of PyTorch's code that goes to Python, which only symbols make it do
    throw Unsupported(Reason::TraceFailed, std::string("in the backward: ") + e.what());
  } catch (const std::runtime_error& e) {
    throw Unsupported(Reason::TraceFailed, std::string("in the backward: ") + e.what());
  }
}

// The number of the first node like this one.
uint64_t first_of_its_kind(const torch::autograd::Node& node, const std::vector<NodePtr>& nodes) {
  const std::string kind = node.name();
  uint64_t first = node.sequence_nr();
  for (const NodePtr& n : nodes)
    if (n->sequence_nr() < first && n->name() == kind) first = n->sequence_nr();
  return first;
}

// Says which node the engine is at; the node keeps it, for longer than the trace.
struct NoteNode : torch::autograd::FunctionPreHook {
  using At = std::shared_ptr<const torch::autograd::Node*>;
  NoteNode(At a, const torch::autograd::Node* n) : at(std::move(a)), node(n) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    *at = node;
    return gradients;
  }
  At at;
  const torch::autograd::Node* node;
};

// The end of the captured part of a history; gradients are taken where they reach it.
struct OuterBackward : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&&) override { return {}; }
};

// Nodes are held by shared_ptr or, in later versions, by intrusive_ptr.
template <class Pointer>
Pointer make_outer() {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<torch::autograd::Node>>)
    return std::make_shared<OuterBackward>();
  else
    return c10::make_intrusive<OuterBackward>();
}

}  // namespace

std::vector<NodePtr> reached(const torch::autograd::edge_list& starts) {
  std::vector<NodePtr> nodes;
  std::unordered_set<const torch::autograd::Node*> seen;
  auto reach = [&](const torch::autograd::Edge& edge) {
    if (edge.function && seen.insert(edge.function.get()).second) nodes.push_back(edge.function);
  };
  for (const torch::autograd::Edge& start : starts) reach(start);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const NodePtr node = nodes[i];  // the list moves as it grows
    for (const torch::autograd::Edge& next : node->next_edges()) reach(next);
  }
  return nodes;
}

torch::autograd::Edge set_outer_history(const at::Tensor& fake) {
  torch::autograd::set_history(fake, make_outer<decltype(torch::autograd::Edge::function)>());
  return torch::autograd::impl::gradient_edge(fake);
}

Differentiable& differentiable(Tracer& tracer) {
  auto* found = dynamic_cast<Differentiable*>(&tracer);
  BRAZE_CHECK(found, "a tracer that does not differentiate");
  return *found;
}

Gradients differentiate(Tracer& tracer, Captured& captured) { return differentiable(tracer).differentiate(captured); }

uint64_t next_node() { return at::sequence_number::peek(); }

JointTrace trace_backward(Recorder& recorder, const std::vector<at::Tensor>& roots,
                          const torch::autograd::edge_list& leaves) {
  JointTrace out;
  graph::Graph& graph = recorder.graph();
  torch::autograd::edge_list starts;
  torch::autograd::variable_list tangents;
  for (const at::Tensor& root : roots) {
    FakeTensor* fake = unwrap_fake(root);
    BRAZE_CHECK(fake, "a root of the backward is no fake");
    out.tangents.push_back(static_cast<uint32_t>(graph.inputs.size()));
    ValueId tangent = graph.add_input(tangent_type(recorder.arena(), graph.type(recorder.memory_of(*fake))),
                                      graph::InputKind::Argument);
    starts.push_back(torch::autograd::impl::gradient_edge(root));
    tangents.push_back(functional::to_functional_tensor(
        make_fake(recorder.shared_from_this(), tangent, FakeTensor::kNoSlot, graph.type(tangent))));
  }

  if (leaves.empty()) return out;
  RecordingScope scope(&recorder);
  // The program's own backward runs outside of its autocast regions.
  c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  torch::autograd::variable_list gradients;
  const std::vector<NodePtr> nodes = reached(starts);
  const auto at = std::make_shared<const torch::autograd::Node*>(nullptr);
  for (const NodePtr& n : nodes) n->add_pre_hook(std::make_unique<NoteNode>(at, n.get()));
  try {
    gradients = run_engine(recorder, starts, tangents, leaves);
  } catch (const Unsupported& e) {
    if (!*at) throw;
    throw BackwardRefused(e, first_of_its_kind(**at, nodes));
  }
  c10::AutoGradMode no_grad(false);
  c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset |
                                           c10::DispatchKeySet(c10::DispatchKey::ADInplaceOrView) |
                                           c10::DispatchKeySet(c10::DispatchKey::Functionalize));
  for (const at::Tensor& g : gradients) {
    if (!g.defined()) {
      out.gradients.emplace_back();
      continue;
    }
    if (functional::isFunctionalTensor(g)) functional::sync(g);
    FakeTensor* fake = unwrap_fake(g);
    out.gradients.push_back(fake ? recorder.value_of(*fake) : recorder.constant(g));
  }
  return out;
}

void wait_for_traced_backwards() {
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (g_traced_backwards > t_traced_backwards && std::chrono::steady_clock::now() < end) {
    pybind11::gil_scoped_release others_go_on;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace braze::trace
