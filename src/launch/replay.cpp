#include "launch/replay.h"

#include <ATen/CPUGeneratorImpl.h>

#include <mutex>

#include "driver/driver.h"
#include "launch/compiled_graph.h"
#include "symbolic/given_symbol.h"
#include "trace/find_operator.h"

namespace braze::launch {
namespace {

using graph::NoneArg;
using graph::Op;
using graph::ValueId;

at::Generator& generator() {
  static at::Generator g = at::detail::getDefaultCPUGenerator();
  return g;
}

// Whether PyTorch says so of an operator that the graph knows by its name alone.
bool draws(const std::string& name) {
  auto op = trace::find_operator(name);
  return op && op->hasTag(at::Tag::nondeterministic_seeded);
}

}  // namespace

std::vector<ValueId> draws_to_keep(const graph::Graph& graph, const RandomReplay& replay) {
  std::vector<ValueId> out;
  bool known = true, others = false;
  for (const graph::Node& n : graph.nodes()) {
    const bool of_others = n.op == Op::Extern && draws(n.extern_name);
    if (!of_others && !(graph::op_traits(n.op) & graph::kNondeterministic)) continue;
    others |= of_others;
    const bool second = n.op == Op::native_dropout || n.op == Op::rrelu_with_noise_functional;
    known = known && (second || n.outputs.size() == 1) && graph.type(n.outputs[0]).device.type == DeviceType::CPU;
    if (known) out.push_back(n.outputs[second ? 1 : 0]);
  }
  if (!known || (replay.possible() && !others)) out.clear();
  return out;
}

RandomReplay::RandomReplay(const graph::Graph& captured, const Options& options)
    : graph_(captured.shared_arena()), options_(options) {
  sym::ExprArena& arena = captured.arena();
  auto stand_in = [&](ValueId v) {
    const TensorType& t = captured.type(v);
    graph::IntList sizes, strides;
    sizes.v = t.sizes;
    strides.v = t.strides;
    TensorType own = t;
    own.offset = arena.constant(0);
    graph::NodeId made =
        graph_.add_node(Op::empty_strided, {sizes, strides, t.dtype, NoneArg{}, t.device, NoneArg{}}, {own});
    return graph_.node(made).outputs[0];
  };
  for (const graph::Node& n : captured.nodes()) {
    if (n.extern_name.starts_with("braze::")) possible_ = false;  // the state changes in between
    if (!(graph::op_traits(n.op) & graph::kNondeterministic)) continue;
    possible_ = possible_ && (graph::op_traits(n.op) & graph::kTypesAlone) &&
                captured.type(n.outputs[0]).device.type == DeviceType::CPU;
    if (!possible_) return;
    std::vector<graph::Arg> args = n.args;
    for (graph::Arg& a : args)
      if (auto* v = std::get_if<ValueId>(&a); v && v->valid()) *v = stand_in(*v);
    std::vector<TensorType> types;
    for (ValueId v : n.outputs) types.push_back(captured.type(v));
    graph::NodeId made = graph_.add_node(n.op, std::move(args), std::move(types));
    graph_.outputs.push_back(graph_.node(made).outputs[n.op == Op::native_dropout ? 1 : 0]);
  }
  graph_.size_symbols = captured.size_symbols;
  for (auto& s : graph_.size_symbols) s.second = {sym::kGivenSymbol, 0};
}

RandomReplay::~RandomReplay() = default;

at::Tensor RandomReplay::state() {
  std::lock_guard<std::mutex> lock(generator().mutex());
  return generator().get_state();
}

RandomReplay::Rewound::Rewound(const at::Tensor& before) : now_(state()) {
  std::lock_guard<std::mutex> lock(generator().mutex());
  generator().set_state(before);
}

RandomReplay::Rewound::~Rewound() {
  std::lock_guard<std::mutex> lock(generator().mutex());
  generator().set_state(now_);
}

std::vector<at::Tensor> RandomReplay::draw(const at::Tensor& before, const std::vector<int64_t>& symbols) {
  if (!compiled_) {
    driver::Artefact made = driver::compile(graph_, options_);
    compiled_ = std::make_unique<CompiledGraph>(graph_, made, std::make_shared<Constants>(std::vector<PyObject*>()),
                                                Aliases::Fresh);
  }
  Rewound rewound(before);
  CompiledGraph::Call call;
  call.symbols = symbols.data();
  compiled_->run(call);
  return {call.results.begin(), call.results.end()};
}

}  // namespace braze::launch
