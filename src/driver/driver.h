// The whole pipeline, readable top to bottom in driver.cpp.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "autodiff/partition.h"
#include "base/options.h"
#include "base/timers.h"
#include "graph/graph.h"
#include "plan/plan.h"

namespace braze::driver {

struct Artefact {
  plan::Plan plan;
  Timings timings;
  size_t nests = 0, kernels = 0, externs = 0;
  bool from_disk_cache = false;
  bool tuned = true;  // with autotune_seconds: there was time to look at every nest (driver/tune_nests.h)
};

// Texts of the stages, filled when asked (BRAZE_LOGS, explain, failure dumps).
struct Dumps {
  std::string passes;  // the graph after each pass that changed it
  std::string graph, lowered, scheduled, kernels;
};

// Throws Unsupported or InternalError; never returns wrong code for what it could not take.
// `owns_inputs`: the caller may drop inputs after their last use (plan::Release).
Artefact compile(const graph::Graph& captured, const Options& options, Dumps* dumps = nullptr,
                 bool owns_inputs = false);

// A joint graph cut in two, and the forward half compiled: its outputs are the joint's, then the values that are saved.
// A backward graph (parts.backward, or what autodiff::specialise makes of it) is compiled like any graph, when it is
// needed.
struct Training {
  autodiff::Partition parts;
  Artefact forward;
};
Training compile_training(const autodiff::Joint& captured, const Options& options, Dumps* dumps = nullptr);

// A graph for CUDA Graphs whose parts run on the GPU and on the CPU by turns: its pieces, each compiled
// (passes/split_by_device.h).
struct Split {
  struct Piece {
    graph::Graph graph;
    bool on_gpu = false;
    std::vector<uint32_t> inputs, outputs;  // slots: the whole graph's inputs first, then what pieces make
    std::vector<std::string> why;           // not on the GPU alone: operators and the user's lines
    Artefact made;
  };
  std::vector<Piece> pieces;
  size_t slots = 0;
  std::vector<int32_t> outputs;  // slots of the whole graph's outputs; -1: None
};
// No pieces: the graph is better compiled whole.
Split compile_split(const graph::Graph& captured, const Options& options, Dumps* dumps = nullptr);

// A graph for options.freezing: what it makes of parameters and buffers alone, and the rest (passes/frozen.h), each
// compiled.
struct Frozen {
  graph::Graph made, rest;
  std::vector<uint32_t> sources;  // per input of `made`: which one of the whole graph it is
  std::vector<bool> inputs;       // per input of the whole graph: it is frozen. Empty: none is
  Artefact making, call;          // `making` only where `made` has outputs
};
Frozen compile_frozen(const graph::Graph& captured, const Options& options, Dumps* dumps = nullptr);

// The ways to lay out the convolutions of a graph that run on a CPU: what a rule says (options.convolution_layout Auto)
// first, then those under which the passes make another graph of it. One: there is nothing to choose.
std::vector<ConvolutionLayout> distinct_layouts(const graph::Graph& captured, const Options& options);

// A graph as scheduled nests, without code: what compile() makes code of.
loop::Program scheduled(const graph::Graph& captured, const Options& options);

// The loop nests of a program in order, and their generated code as text.
std::vector<const loop::Nest*> nests_of(const loop::Program& program);
std::string sources(const loop::Program& program, const Options& options);

}  // namespace braze::driver
