// What a compiled region with gradients is made of; it does not change from call to call.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "autodiff/partition.h"
#include "base/options.h"
#include "launch/compiled_graph.h"
#include "launch/cuda_graph.h"
#include "launch/training.h"
#include "launch/uncompiled_region.h"

namespace braze::autodiff {
struct Backward;
}

namespace braze::launch {

// The backward for one set of outputs that have gradients.
struct CompiledBackward {
  struct Input {
    autodiff::Source::Kind kind;
    uint32_t index;  // Input and Saved: among TrainingProgram::saved; else as in Source
  };
  std::unique_ptr<CompiledGraph> graph;
  std::unique_ptr<ReplayedGraph> replayed;
  std::vector<Input> inputs;
  mutable std::atomic<bool> ran = false;
};

class TrainingProgram {
 public:
  TrainingProgram(Captured captured, trace::Gradients added, const Options& options, bool texts, bool must_compile);

  // `given`: per tangent, whether there is one. Compiled when it is first asked for. Thread-safe; needs no GIL.
  const CompiledBackward& backward(const std::vector<bool>& given);
  // The saved values that it reads; without compiling it.
  const std::vector<uint32_t>& reads(const std::vector<bool>& given);

  TrainingReport training_report();
  Report report();

  trace::Gradients gradients;
  std::vector<trace::OutputView> views;
  std::vector<trace::LazyBits> lazy;
  autodiff::Partition parts;
  std::unique_ptr<CompiledGraph> forward;
  std::unique_ptr<ReplayedGraph> forward_replayed;
  std::unique_ptr<UncompiledRegion> uncompiled;
  std::pair<size_t, size_t> drawn;  // outputs that a node keeps should it run uncompiled: the first of them, how many
  std::vector<autodiff::Source> saved;                 // what a node keeps, in order
  std::vector<std::pair<uint32_t, uint32_t>> written;  // outputs that stand for what was written to inputs

  // Where a node finds what an input held before the region ran; the compiled backward alone does not need it.
  struct InputSource {
    enum class Kind : uint8_t {
      Saved,     // among `saved`
      Kept,      // the tensor itself
      Snapshot,  // a copy made before the region wrote to it
      Unneeded,  // gradients do not depend on it
    } kind = Kind::Unneeded;
    uint32_t index = 0;  // Saved
  };
  std::vector<InputSource> input_sources;  // per input of `forward`
  bool takes_snapshots = false;

 private:
  void find_input_sources();
  std::vector<CompiledBackward::Input> inputs_of(const autodiff::Backward& part) const;
  std::vector<Placement> backward_placements(const autodiff::Backward& part) const;
  driver::Artefact compile_backward(const graph::Graph& graph, driver::Dumps* dumps) const;

  Options options_;
  bool texts_, must_compile_;
  std::shared_ptr<const Constants> constants_;
  std::mutex mutex_;
  std::map<std::vector<bool>, std::unique_ptr<CompiledBackward>> backwards_;
  std::map<std::vector<bool>, std::vector<uint32_t>> reads_;
  Report report_;
  TrainingReport training_;
};

}  // namespace braze::launch
