// Pieces of a graph for CUDA Graphs: those that run on the GPU alone can be recorded, those between them touch the CPU.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace braze::passes {

struct Piece {
  graph::Graph graph;   // inputs of the whole graph keep their kind, but constants are buffers here
  bool on_gpu = false;  // no operator of it reads or makes a tensor of the CPU
  std::vector<graph::ValueId> inputs, outputs;  // values of the whole graph, one per input and output of the piece's
  std::vector<std::string> why;                 // of the others: operators that touch the CPU, with the user's lines
};

// In an order in which they can run; together they compute what the graph does, each node once (views of the GPU's
// memory where they are needed), random operators in their order. Empty: the graph is better left whole, because all of
// it runs on one side, or because it writes to inputs, returns one, or has sizes that are symbols.
std::vector<Piece> split_by_device(const graph::Graph& graph);

}  // namespace braze::passes
