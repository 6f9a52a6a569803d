// Freezing: what inference computes of a model's parameters and buffers alone, which is the same in every call until
// one of them is written to.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace braze::passes {

// Per input: a parameter, buffer or constant, of known size, that the graph does not write to.
std::vector<bool> frozen_inputs(const graph::Graph& g);
// Per value: frozen inputs, and the results, of known size, of operators that read nothing else, draw no random numbers
// and cannot raise.
std::vector<bool> frozen_values(const graph::Graph& g);

// A graph cut in two: what is made of frozen inputs, and the rest.
struct FrozenSplit {
  graph::Graph
      made;  // inputs: those of the whole graph at `sources`, constants as buffers; outputs: all are read by `rest`
  graph::Graph rest;  // inputs: the whole graph's, then a buffer for each output of `made`
  std::vector<uint32_t> sources;
};
// Left in `rest`: results (each call's are its own), views, values that are larger than all that they are made of
// (converted weights, say), and cheap ones that read no memory. No outputs of `made`: nothing is left.
FrozenSplit split_frozen(const graph::Graph& g);

}  // namespace braze::passes
