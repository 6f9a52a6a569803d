// Checkpoints whose backward the program runs in the captured code itself.
#pragma once
#include "graph/graph.h"

namespace braze::autodiff {

// Whether a checkpoint's forward nodes are there.
bool has_checkpoints(const graph::Graph& g);

// The graph in which the backward of each checkpoint reads what it computes again, right before its first reader, in
// place of what the forward did. Values that are to be saved stay, and what cannot be repeated, and what the backward
// of others has read already. The forward nodes are no part of checkpoints any more.
graph::Graph repeat_checkpoints(const graph::Graph& g);

}  // namespace braze::autodiff
