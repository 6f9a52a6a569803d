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
#include "trace/pytorch/python_function.h"
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

using NodePtr = decltype(torch::autograd::Edge::function);

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

// The number of the first node like this one; nothing where it is none of these, as those that a backward makes.
std::optional<uint64_t> first_of_its_kind(const torch::autograd::Node* node, const std::vector<NodePtr>& nodes) {
  if (std::none_of(nodes.begin(), nodes.end(), [&](const NodePtr& n) { return n.get() == node; })) return std::nullopt;
  const std::string kind = node->name();
  uint64_t first = node->sequence_nr();
  for (const NodePtr& n : nodes)
    if (n->sequence_nr() < first && n->name() == kind) first = n->sequence_nr();
  return first;
}

// A backward in Python may fail before it computes anything.
struct NoteNode : torch::autograd::FunctionPreHook {
  NoteNode(Recorder& r, const torch::autograd::Node* n) : recorder(r.weak_from_this()), node(n) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    if (auto r = recorder.lock()) r->last_node = node;
    return gradients;
  }
  std::weak_ptr<Recorder> recorder;
  const torch::autograd::Node* node;  // which has this hook
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

namespace {

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

}  // namespace

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
  struct InBackward {
    Recorder& recorder;
    explicit InBackward(Recorder& r) : recorder(r) { recorder.in_backward = true; }
    ~InBackward() { recorder.in_backward = false, recorder.last_node = nullptr; }
  } in_backward{recorder};
  const std::vector<NodePtr> nodes = reached(starts);
  for (const NodePtr& n : nodes)
    if (pytorch::is_python_function(n)) n->add_pre_hook(std::make_unique<NoteNode>(recorder, n.get()));
  try {
    gradients = run_engine(recorder, starts, tangents, leaves);
  } catch (const Unsupported& e) {
    auto first = first_of_its_kind(recorder.last_node, nodes);
    if (!first) throw;
    throw BackwardRefused(e, *first);
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
