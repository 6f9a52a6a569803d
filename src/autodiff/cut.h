// The cheapest set of values to keep for a backward: a minimum cut.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace braze::autodiff {

constexpr int64_t kReluctance = 4;  // what is better computed again costs this many times its bytes
// And more: of memory that the program may write to, kept as a copy if nothing else will do.
constexpr int64_t kCopied = int64_t{1} << 50;

struct CutProblem {
  const graph::Graph& graph;
  std::vector<bool> needed;          // per value: the backward may need it, and it can be kept or computed again
  std::vector<int64_t> cost;         // per value, of keeping it
  std::vector<graph::ValueId> root;  // per value: what it is a view of, in the end
  struct Read {
    graph::ValueId value;
    uint32_t region;  // of the checkpoint that reads; 0: none
  };
  std::vector<Read> reads;             // by the backward
  std::vector<graph::ValueId> pinned;  // kept if anything reads them
};

// `fixed`: nodes that may not be repeated. Throws Unsupported where there is no cut.
std::vector<graph::ValueId> cheapest_cut(const CutProblem&, const std::vector<bool>& fixed);

}  // namespace braze::autodiff
