#include "trace/branch.h"

#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/input_metadata.h>
#include <torch/csrc/autograd/variable.h>

#include <map>
#include <utility>

#include "trace/graph_break.h"
#include "trace/pytorch/autograd_node.h"

namespace braze::trace {
namespace {

using graph::Op;
using graph::OpClass;
using torch::autograd::Edge;
using torch::autograd::Node;

bool never_fails(const graph::Graph& graph, const graph::Node& node) {
  switch (graph::op_row(node.op).raises) {
    case graph::Raises::Never: return true;
    case graph::Raises::ZeroDivisor: return is_floating(graph.type(node.outputs[0]).dtype);
    case graph::Raises::Values: return false;
  }
  return false;
}

struct ChosenBackward final : Node {
  ChosenBackward(const at::Tensor& p, bool w, const Edge& to) : predicate(p), when(w) {
    const auto& metadata = to.function->input_metadata(to.input_nr);
    add_input_metadata(metadata.options(), metadata.shape_as_dim_vector(), metadata.is_tensor_subclass(),
                       metadata.is_nested_tensor(), metadata.grad_dtype());
    add_next_edge(to);
  }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const at::Tensor& g = gradients[0];
    if (!g.defined()) return {at::Tensor()};
    // Derivatives of what the branch's backward computes would reach what was there before by other ways than the edges
    // below.
    if (c10::GradMode::is_enabled())
      throw_graph_break(Reason::UnsupportedFeature, "second derivatives of a branch on the value of a tensor");
    at::Tensor chosen = predicate.device() == g.device() ? predicate : predicate.to(g.device());
    return {when ? at::where(chosen, g, c10::Scalar(0)) : at::where(chosen, c10::Scalar(0), g)};
  }
  std::string name() const override { return "ChosenBackward"; }

  at::Tensor predicate;
  bool when;
};

}  // namespace

std::string why_not_in_vain(const graph::Graph& graph, size_t first) {
  for (size_t i = first; i < graph.nodes().size(); ++i) {
    const graph::Node& node = graph.node(graph::NodeId(i));
    if (never_fails(graph, node)) continue;
    return "it calls " + (node.op == Op::Extern ? node.extern_name : std::string(graph::op_name(node.op))) +
           ", which may fail or have effects";
  }
  return {};
}

void end_gradients(const std::vector<at::Tensor>& roots, uint64_t order, const std::unordered_set<const Node*>& outer,
                   const at::Tensor& predicate, bool when) {
  auto inside = [&](const Node* n) {
    return n->sequence_nr() >= order && n->sequence_nr() != UINT64_MAX && !outer.count(n);
  };
  std::vector<Node*> open;
  std::unordered_set<Node*> seen;
  auto visit = [&](Node* n) {
    if (seen.insert(n).second) open.push_back(n);
  };
  for (const at::Tensor& root : roots)
    if (const auto& fn = root.grad_fn(); fn && inside(fn.get())) visit(fn.get());
  std::map<std::pair<Node*, uint32_t>, Edge> ends;
  while (!open.empty()) {
    Node* n = open.back();
    open.pop_back();
    for (Edge& e : n->next_edges()) {
      if (!e.is_valid()) continue;
      if (inside(e.function.get())) {
        visit(e.function.get());
        continue;
      }
      Edge& end = ends[{e.function.get(), e.input_nr}];
      if (!end.is_valid()) end = Edge(pytorch::make_node<ChosenBackward>(predicate, when, e), 0);
      e = end;
    }
  }
}

}  // namespace braze::trace
