#include "driver/driver.h"

#include <algorithm>
#include <unordered_map>

#include "autodiff/masks.h"
#include "autodiff/overwritten.h"
#include "autodiff/repeat.h"
#include "base/strict.h"
#include "codegen/codegen.h"
#include "driver/build_plan.h"
#include "driver/compile_nests.h"
#include "driver/fallback.h"
#include "driver/kept_results.h"
#include "driver/products.h"
#include "driver/targets.h"
#include "driver/tune_nests.h"
#include "lower/lower.h"
#include "passes/cse.h"
#include "passes/dce.h"
#include "passes/decompose.h"
#include "passes/fold.h"
#include "passes/fold_into_weights.h"
#include "passes/frozen.h"
#include "passes/keep_checks.h"
#include "passes/merge_products.h"
#include "passes/optimize.h"
#include "passes/simplify_views.h"
#include "passes/split_by_device.h"
#include "passes/widen_products.h"
#include "schedule/concurrent.h"
#include "schedule/memory.h"
#include "schedule/schedule.h"

namespace braze::driver {
namespace {

template <class T>
T checked(T value) {
  if (verifying()) verify(value);
  return value;
}

template <class F>
auto staged(Timings& timings, const char* name, F&& run) {
  StageTimer timer(timings, name);
  return run();
}

// The passes, timed as "optimize" in all and, where texts are asked for, one by one.
graph::Graph optimized(const graph::Graph& captured, const Options& options, const Targets& targets, Timings& timings,
                       Dumps* dumps) {
  passes::Watch watch;
  std::string before = dumps ? graph::print(captured) : std::string();
  if (dumps)
    watch = [&](const passes::Pass& pass, const graph::Graph& g, double seconds) {
      std::string now = graph::print(g);
      dumps->passes += std::string("after ") + pass.name + (now == before ? ": unchanged\n" : "\n" + now);
      timings.stages.emplace_back(std::string("optimize: ") + pass.name, seconds);
      before = std::move(now);
    };
  return staged(timings, "optimize", [&] { return passes::optimize(captured, options, targets, watch); });
}

// Inputs that a call may drop: constants are those of all calls.
std::vector<bool> droppable(const graph::Graph& graph, bool owned) {
  std::vector<bool> out;
  for (const graph::Input& in : graph.inputs) out.push_back(owned && in.kind != graph::InputKind::Constant);
  return out;
}

// BRAZE_CALLS=1 calls PyTorch's operators instead of kernels, to tell where a result comes from.
bool calls_only() {
  static const bool on = is_set("BRAZE_CALLS");
  return on;
}

// Texts are those of the stages as they run.
bool may_be_kept(const Options& options, const Dumps* dumps) { return options.disk_cache && !dumps && !calls_only(); }

// The stages after the graph passes.
Artefact compile_optimized(const graph::Graph& graph, Timings timings, const Options& options, const Targets& targets,
                           Dumps* dumps, bool owns_inputs, bool calls = calls_only()) {
  Artefact made;
  made.timings = std::move(timings);
  auto stage = [&](const char* name, auto&& run) { return staged(made.timings, name, run); };
  if (dumps) dumps->graph = graph::print(graph);
  loop::Program lowered = stage("lower", [&] {
    return checked(calls ? lower::lower_to_calls(graph, options, targets) : lower::lower(graph, options, targets));
  });
  if (dumps) dumps->lowered = loop::print(lowered);
  loop::Program program = stage(
      "schedule", [&] { return checked(schedule::schedule(lowered, options, targets, taken(options, targets))); });
  if (options.autotune_seconds > 0 && !calls)
    made.tuned = stage("tune", [&] { return tune_nests(program, options, targets); });
  if (dumps) dumps->scheduled = loop::print(program);
  std::vector<FoundProduct> products;
  if (options.autotune_seconds > 0 && !calls)
    products = stage("products", [&] { return find_products(program, targets); });
  schedule::MemoryPlan memory = stage("memory", [&] { return schedule::plan_memory(program, uses_of(products)); });
  products = safe(std::move(products), program, memory);
  const auto runs = schedule::concurrent_nests(program, memory, items_of(products, program));
  codegen::Compiled code = stage("codegen", [&] { return compile_nests(program, runs, options, targets); });
  if (dumps) dumps->kernels = sources_of(program, runs, options, targets);
  made.plan = stage("plan", [&] {
    return checked(build_plan(program, memory, std::move(code), droppable(graph, owns_inputs), products));
  });
  made.plan.tuning_seconds = options.autotune_seconds;
  made.plan.keeps_choices = options.disk_cache;

  for (const loop::Item& item : program.items) ++(std::holds_alternative<loop::Nest>(item) ? made.nests : made.externs);
  made.kernels = made.plan.kernels.size();
  return made;
}

}  // namespace

loop::Program scheduled(const graph::Graph& captured, const Options& options) {
  const Targets targets = targets_of(captured, options);
  graph::Graph graph = passes::optimize(captured, options, targets);
  graph = passes::keep_checks(graph, graph.outputs.size(), {});
  return checked(
      schedule::schedule(checked(lower::lower(graph, options, targets)), options, targets, taken(options, targets)));
}

Artefact compile(const graph::Graph& captured, const Options& options, Dumps* dumps, bool owns_inputs) {
  if (verifying()) graph::verify(captured);
  const Targets targets = targets_of(captured, options);
  auto make = [&](Timings timings) {
    graph::Graph graph = optimized(captured, options, targets, timings, dumps);
    graph = checked(passes::keep_checks(graph, graph.outputs.size(), {}));
    if (autodiff::has_checkpoints(graph)) graph = checked(passes::cse(autodiff::repeat_checkpoints(graph)));
    return compile_optimized(graph, std::move(timings), options, targets, dumps, owns_inputs);
  };
  if (!may_be_kept(options, dumps)) return make({});
  return kept_or_made(captured, options, targets, owns_inputs ? "graph that owns its inputs" : "graph", captured, make);
}

Artefact compile_to_calls(const graph::Graph& graph, const Options& options, bool owns_inputs) {
  return compile_optimized(graph, Timings(), options, targets_of(graph, options), nullptr, owns_inputs, true);
}

Training compile_training(const autodiff::Joint& captured, const Options& wanted, Dumps* dumps) {
  if (verifying()) graph::verify(captured.graph);
  const Targets targets = targets_of(captured.graph, wanted);
  Options options = wanted;
  options.freezing = false;  // of inference alone
  auto make = [&](Timings timings) {
    graph::Graph optimal = optimized(captured.graph, options, targets, timings, dumps);
    optimal = checked(passes::keep_checks(optimal, captured.outputs, captured.tangents));
    autodiff::Joint joint = staged(timings, "narrow", [&] {
      graph::Graph graph = checked(autodiff::narrow_masks(std::move(optimal)));
      return autodiff::Joint{checked(autodiff::keep_overwritten(std::move(graph), captured.tangents)), captured.outputs,
                             captured.tangents, captured.reads};
    });
    Training made;
    made.parts = staged(timings, "partition", [&] { return autodiff::partition(joint, options.memory_budget); });
    // What checkpoints compute again was not shared between them; in the forward half it may be.
    if (autodiff::has_checkpoints(joint.graph)) made.parts.forward = passes::cse(made.parts.forward);
    if (verifying()) {
      graph::verify(made.parts.forward);
      graph::verify(made.parts.backward);
    }
    made.forward = compile_optimized(made.parts.forward, std::move(timings), options, targets, dumps, false);
    return made;
  };
  if (!may_be_kept(options, dumps)) return make({});
  return kept_or_made(captured.graph, options, targets, describe(captured), captured, make);
}

Split compile_split(const graph::Graph& captured, const Options& options, Dumps* dumps) {
  graph::Graph whole = passes::dce(captured);
  Split split;
  std::unordered_map<uint32_t, uint32_t> slots;  // by value
  for (const graph::Input& in : whole.inputs) slots.emplace(in.value.index, split.slots++);
  auto numbers = [&](const std::vector<graph::ValueId>& values) {
    std::vector<uint32_t> out;
    for (graph::ValueId v : values) {
      auto [at, fresh] = slots.emplace(v.index, split.slots);
      split.slots += fresh;
      out.push_back(at->second);
    }
    return out;
  };
  for (passes::Piece& p : passes::split_by_device(whole)) {
    Split::Piece piece{std::move(p.graph), p.on_gpu, numbers(p.inputs), numbers(p.outputs), std::move(p.why), {}};
    if (verifying()) graph::verify(piece.graph);
    Dumps texts;
    piece.made = compile(piece.graph, options, dumps ? &texts : nullptr);
    if (dumps) {
      dumps->passes += texts.passes;
      dumps->graph += texts.graph;
      dumps->lowered += texts.lowered;
      dumps->scheduled += texts.scheduled;
      dumps->kernels += texts.kernels;
    }
    split.pieces.push_back(std::move(piece));
  }
  if (split.pieces.empty()) return split;
  for (graph::ValueId v : whole.outputs)
    split.outputs.push_back(v.valid() ? static_cast<int32_t>(slots.at(v.index)) : -1);
  return split;
}

Frozen compile_frozen(const graph::Graph& captured, const Options& options, Dumps* dumps) {
  Frozen out{graph::Graph(captured.shared_arena()), graph::Graph(captured.shared_arena()), {}, {}, {}, {}};
  std::vector<bool> inputs = passes::frozen_inputs(captured);
  if (std::find(inputs.begin(), inputs.end(), true) == inputs.end()) return out;
  Timings timings;
  passes::FrozenSplit split = staged(timings, "freeze", [&] {
    graph::Graph g = passes::cse(passes::simplify_views(passes::fold(passes::decompose(captured))));
    g = passes::merge_products(passes::fold_into_weights(passes::dce(std::move(g))));
    // Here, too, so that wide weights are made once.
    return passes::split_frozen(passes::dce(passes::cse(passes::widen_weights(g, targets_of(captured, options)))));
  });
  if (verifying()) {
    graph::verify(split.made);
    graph::verify(split.rest);
  }
  out.made = std::move(split.made);
  out.rest = std::move(split.rest);
  out.sources = std::move(split.sources);
  out.inputs = std::move(inputs);
  out.call = compile(out.rest, options, dumps);
  Options plain = options;
  plain.freezing = false;
  if (!out.made.outputs.empty()) {
    out.making = compile(out.made, plain);
    const auto& stages = out.making.timings.stages;
    timings.stages.insert(timings.stages.end(), stages.begin(), stages.end());
  }
  out.call.timings.stages.insert(out.call.timings.stages.begin(), timings.stages.begin(), timings.stages.end());
  return out;
}

std::vector<ConvolutionLayout> distinct_layouts(const graph::Graph& captured, const Options& options) {
  auto on_cpu = [&](const graph::Node& n) {
    return n.op == graph::Op::convolution && n.outputs[0].valid() &&
           captured.type(n.outputs[0]).device.type == DeviceType::CPU;
  };
  const auto& nodes = captured.nodes();
  if (std::none_of(nodes.begin(), nodes.end(), on_cpu)) return {ConvolutionLayout::Auto};
  std::vector<ConvolutionLayout> out;
  std::vector<std::string> made;
  for (ConvolutionLayout layout :
       {ConvolutionLayout::Auto, ConvolutionLayout::Recorded, ConvolutionLayout::ChannelsLast}) {
    Options with = options;
    with.convolution_layout = layout;
    std::string text = graph::print(passes::optimize(captured, with, targets_of(captured, with)));
    if (std::find(made.begin(), made.end(), text) != made.end()) continue;
    out.push_back(layout);
    made.push_back(std::move(text));
  }
  return out;
}

std::vector<const loop::Nest*> nests_of(const loop::Program& program) {
  std::vector<const loop::Nest*> nests;
  for (const loop::Item& item : program.items)
    if (auto* n = std::get_if<loop::Nest>(&item)) nests.push_back(n);
  return nests;
}

std::string sources(const loop::Program& program, const Options& options) {
  const auto runs = schedule::concurrent_nests(program, schedule::plan_memory(program));
  return sources_of(program, runs, options, targets_of(program));
}

}  // namespace braze::driver
