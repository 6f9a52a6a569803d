#include "launch/training_program.h"

#include <algorithm>

#include "autodiff/specialise.h"
#include "base/strict.h"
#include "driver/driver.h"
#include "driver/fallback.h"
#include "launch/gil.h"
#include "launch/warn_once.h"

namespace braze::launch {

using autodiff::Source;

TrainingProgram::TrainingProgram(Captured captured, trace::Gradients added, const Options& options, bool texts,
                                 bool must_compile)
    : gradients(std::move(added)),
      views(std::move(captured.views)),
      lazy(std::move(captured.lazy)),
      options_(options),
      texts_(texts),
      must_compile_(must_compile) {
  driver::Dumps dumps;
  auto random = std::make_unique<RandomReplay>(captured.graph, options);
  // Before the gradients, as outputs without any.
  const std::vector<graph::ValueId> kept = draws_to_keep(captured.graph, *random);
  drawn = {gradients.outputs, kept.size()};
  auto& outputs = captured.graph.outputs;
  outputs.insert(outputs.begin() + static_cast<std::ptrdiff_t>(gradients.outputs), kept.begin(), kept.end());
  gradients.outputs += kept.size();
  autodiff::Joint::Reads reads{gradients.read_inputs, gradients.read_outputs};
  driver::Training made =
      driver::compile_training({std::move(captured.graph), gradients.outputs, gradients.tangents, std::move(reads)},
                               options, texts ? &dumps : nullptr);
  parts = std::move(made.parts);
  if (!parts.random || !random->possible() || drawn.second) random = nullptr;
  constants_ = std::make_shared<Constants>(std::move(captured.constants));
  report_ = {made.forward.nests,
             made.forward.kernels,
             made.forward.externs,
             made.forward.from_disk_cache,
             std::move(made.forward.timings),
             {},
             std::move(dumps.passes),
             std::move(dumps.graph),
             std::move(dumps.lowered),
             std::move(dumps.scheduled),
             std::move(dumps.kernels)};
  training_.saved_bytes = parts.saved_bytes;
  training_.partition = parts.report();
  forward = std::make_unique<CompiledGraph>(parts.forward, made.forward, constants_, Aliases::Fresh,
                                            std::move(captured.write_counts), parts.bound);
  if (options.cuda_graphs)
    forward_replayed = std::make_unique<ReplayedGraph>(*forward, placements(parts.forward), gradients.outputs);
  uncompiled = std::make_unique<UncompiledRegion>(parts.forward, gradients, views, constants_, std::move(random),
                                                  parts.random && !drawn.second, options);
  for (const Source& s : parts.sources)
    if (s.kind == Source::Kind::Input || s.kind == Source::Kind::Saved) saved.push_back(s);
  for (uint32_t i : gradients.tangent_of)
    if (const auto& value = parts.forward.value(parts.forward.outputs[i]);
        i >= gradients.results && !value.node.valid())
      written.emplace_back(i, value.index);
  find_input_sources();
}

void TrainingProgram::find_input_sources() {
  using Kind = InputSource::Kind;
  input_sources.resize(parts.forward.inputs.size());
  std::vector<bool> overwritten(input_sources.size());
  for (const graph::Writeback& w : parts.forward.writebacks) overwritten[parts.forward.value(w.input).index] = true;
  for (uint32_t i : parts.needed_inputs) input_sources[i].kind = overwritten[i] ? Kind::Snapshot : Kind::Kept;
  for (uint32_t k = 0; k < saved.size(); ++k) {
    if (saved[k].kind == Source::Kind::Input) input_sources[saved[k].index] = {Kind::Saved, k};
    for (const autodiff::Partition::Copy& c : parts.copies)
      if (saved[k].kind == Source::Kind::Saved && saved[k].index == c.output) input_sources[c.input] = {Kind::Saved, k};
  }
  for (const InputSource& s : input_sources) takes_snapshots |= s.kind == Kind::Snapshot;
}

std::vector<CompiledBackward::Input> TrainingProgram::inputs_of(const autodiff::Backward& part) const {
  std::vector<uint32_t> slot(parts.sources.size());
  uint32_t next = 0;
  for (size_t i = 0; i < slot.size(); ++i) {
    const Source& s = parts.sources[i];
    slot[i] = s.kind == Source::Kind::Input || s.kind == Source::Kind::Saved ? next++ : s.index;
  }
  std::vector<CompiledBackward::Input> out;
  for (uint32_t i : part.inputs) out.push_back({parts.sources[i].kind, slot[i]});
  return out;
}

const std::vector<uint32_t>& TrainingProgram::reads(const std::vector<bool>& given) {
  auto lock = lock_without_gil(mutex_);
  auto [known, fresh] = reads_.try_emplace(given);
  if (!fresh) return known->second;
  pybind11::gil_scoped_acquire arena_is_ours;  // see backward()
  for (const CompiledBackward::Input& in : inputs_of(autodiff::specialise(parts, given)))
    if (in.kind == Source::Kind::Input || in.kind == Source::Kind::Saved) known->second.push_back(in.index);
  return known->second;
}

const CompiledBackward& TrainingProgram::backward(const std::vector<bool>& given) {
  auto lock = lock_without_gil(mutex_);
  auto& known = backwards_[given];
  if (known) return *known;
  // Compiling adds to the capture's expressions of sizes, which others, who check guards and explain them, read under
  // the GIL.
  pybind11::gil_scoped_acquire arena_is_ours;
  autodiff::Backward part = autodiff::specialise(parts, given);
  driver::Dumps dumps;
  driver::Artefact made = compile_backward(part.graph, texts_ ? &dumps : nullptr);
  report_.source += dumps.kernels;
  training_.backward_kernels += made.kernels;
  training_.backward_externs += made.externs;
  report_.kernels += made.kernels;
  report_.externs += made.externs;
  report_.nests += made.nests;
  for (auto& [stage, seconds] : made.timings.stages) report_.timings.stages.emplace_back("backward " + stage, seconds);
  auto fresh = std::make_unique<CompiledBackward>();
  fresh->graph = std::make_unique<CompiledGraph>(part.graph, made, constants_, Aliases::Shared);
  fresh->inputs = inputs_of(part);
  if (options_.cuda_graphs)
    fresh->replayed = std::make_unique<ReplayedGraph>(*fresh->graph, backward_placements(part), 0);
  known = std::move(fresh);
  return *known;
}

TrainingReport TrainingProgram::training_report() {
  auto lock = lock_without_gil(mutex_);
  return training_;
}

Report TrainingProgram::report() {
  auto lock = lock_without_gil(mutex_);
  Report r = report_;
  r.plan = forward->plan().describe();
  for (auto& [given, b] : backwards_) r.plan += "backward " + b->graph->plan().describe();
  return r;
}

// What a replayed forward saved lies where it lay before, as parameters do.
std::vector<Placement> TrainingProgram::backward_placements(const autodiff::Backward& part) const {
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
driver::Artefact TrainingProgram::compile_backward(const graph::Graph& graph, driver::Dumps* dumps) const {
  try {
    return driver::compile(graph, options_, dumps, /*owns_inputs=*/true);
  } catch (const std::exception& e) {
    if (strict() || must_compile_) throw;
    warn_once(std::string("braze: internal failure in the backward of a compiled region, which runs uncompiled: ") +
              e.what());
    return driver::compile_to_calls(graph, options_, /*owns_inputs=*/true);
  }
}

}  // namespace braze::launch
