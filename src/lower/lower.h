// Tensor graph to loop program: every value is either realised (a window on a buffer) or inlined into its readers.
//
// - Pointwise, view, indexing and factory operators are inlined until an output, an extern call, a reduction's result
// or
//   a cost limit (realise.h) asks for a buffer. Views of buffers stay windows wherever index arithmetic allows.
// - A pointwise nest iterates over its buffer's dimensions of size other than 1, outermost the largest stride. A
// reduction
//   nest has the kept dimensions outside, the reduced ones in its first stage, and stores in its second.
// - Several nests may store to disjoint or successive parts of one buffer (cat, scatter): they precede every reader and
//   keep their order among each other where their accesses overlap.
// - Loop variables are shared by all nests of the arena (one per position and extent), so that equal layers give nests
//   that differ in buffers alone.
// - f16 and bf16 are computed in f32: rounded where a tensor is stored, and where the user's program casts.
// - What no rule takes becomes an extern call; the result is right for every operator that the runtime can call.
#pragma once
#include "base/options.h"
#include "graph/graph.h"
#include "graph/targets.h"
#include "loop/loop.h"

namespace braze::lower {

loop::Program lower(const graph::Graph& graph, const Options& options, const Targets& targets);
// Without rules: every operator is an extern call but views, and random numbers from seeds, which PyTorch has no
// operator for.
loop::Program lower_to_calls(const graph::Graph& graph, const Options& options, const Targets& targets);
// Every value computed inside its readers, whatever it costs: a pointwise graph of one output is one nest.
loop::Program lower_inlined(const graph::Graph& graph, const Options& options, const Targets& targets);

}  // namespace braze::lower
