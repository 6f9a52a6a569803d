// A joint graph cut in a forward and a backward graph (the min-cut partition of AOTAutograd, after Zhang et al.'s
// formulation of rematerialisation as a minimum cut): what is kept between them is the cheapest set of values from
// which the backward graph can be computed without doing dear work twice.
//
// - A value costs its bytes; twice as much when the forward graph would not write it to memory for another reason.
// Views
//   are never kept, their bases are. Parameters and buffers are alive anyway and cost next to nothing.
// - Matrix products, convolutions, attention, reductions, scatters, external calls: computed once, in the forward
// graph.
//   Random operators, too, always. So is what the backward graph would have to write to memory for an external call.
// - Size symbols of both graphs are those of the joint one, in its order; the backward's are given by who runs it.
// Symbols that
//   the forward graph binds (sizes that depend on data) are size symbols of the backward, too, and come after the
//   others.
// - Arguments and outputs may be written to before the backward runs. They are kept only where the captured backward
// reads their
//   memory itself, so that the program could not have done that; else as copies, as eager kept something of its own
//   there.
// - Of a checkpoint nothing is kept but what others read of it, which it doesn't compute again for them, and what its
//   policy says: the rest is computed again, whatever it is, from what it reads of others. Of its values, one that is
//   to be saved is kept if the backward may need it, or (preferred) is not computed again under the full budget; one
//   that is to be recomputed is never kept, or (preferred) only in place of kReluctance times its bytes. Results of
//   random operators that are no functions of seeds are kept there, too.
// - A memory budget (0 to 1) relaxes this: the share of the default's bytes that may be kept. Work is then done again,
//   cheapest per byte first, until what is kept fits; random operators are never run again.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace braze::autodiff {

// Forward and backward in one graph. Inputs: the region's, and among them the gradients of outputs, called tangents.
// Outputs: `outputs` values of the forward computation, then gradients (invalid: none).
struct Joint {
  // Inputs and outputs (of the forward computation) whose memory the captured backward reads, by their numbers.
  struct Reads {
    std::vector<uint32_t> inputs, outputs;
  };
  graph::Graph graph;
  size_t outputs = 0;
  std::vector<uint32_t> tangents;             // numbers of inputs
  std::optional<Reads> reads = std::nullopt;  // without: what nodes that depend on tangents read
};

// Where an input of the backward graph comes from.
struct Source {
  enum class Kind : uint8_t {
    Input,     // input `index` of the forward graph (not a constant)
    Constant,  // constant `index` of the joint graph
    Saved,     // output `index` of the forward graph
    Tangent,   // tangent `index`
  } kind;
  uint32_t index;
};

struct Kept {        // a line of the report
  std::string what;  // operator or input
  int64_t bytes = 0;
  graph::LocId loc;
};

struct Partition {
  Partition();
  graph::Graph forward;   // inputs: the joint's without tangents, in order; outputs: the joint's forward outputs, then
                          // saved values
  graph::Graph backward;  // inputs are arguments, but for constants; outputs: the gradients
  std::vector<Source> sources;                    // per input of `backward`
  std::vector<std::vector<uint32_t>> depends_on;  // per gradient: the tangents that it is a function of
  std::vector<sym::Expr> bound;  // unbacked symbols of `forward` whose values the last size symbols of `backward` are
  // Forward inputs and outputs whose memory the captured backward reads: writing to them before the backward is an
  // error of the program, whether or not the partition kept them.
  std::vector<uint32_t> read_inputs, read_outputs;
  // Forward inputs (not constants) of which anything that the backward half reads is a function.
  std::vector<uint32_t> needed_inputs;
  struct Copy {
    uint32_t input, output;
  };
  std::vector<Copy> copies;  // forward inputs, and kept forward outputs that are clones of them

  std::vector<Kept> saved, recomputed;
  int64_t saved_bytes = 0;  // without parameters and buffers
  bool random = false;      // the forward graph draws random numbers
  std::string report() const;
};

// `memory_budget`: 1 for the default, less down to 0 (above).
Partition partition(const Joint& joint, double memory_budget = 1);

}  // namespace braze::autodiff
