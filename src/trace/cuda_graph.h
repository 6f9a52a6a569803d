// mode="reduce-overhead": a compiled graph recorded as a CUDA Graph and replayed.
//
// The first calls run as they are; then the region is recorded once per set of argument sizes, in a memory pool of its own.
// A replay copies the arguments into the recorded addresses; parameters must lie where they lay (else it is recorded anew).
// Results are copied out, so that one that is still alive is never overwritten by a later call. A region that cannot be
// recorded runs as it is; the log's topic graph_breaks says why.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace braze::trace {

struct ReplayFacts {
  std::vector<graph::InputKind> inputs;  // of the graph
  std::vector<uint32_t> written;         // inputs that the region changes
  std::string why_not;                   // empty: it may be recorded
};

std::unique_ptr<Runnable> make_replaying(std::unique_ptr<Runnable> compiled, ReplayFacts facts);

}  // namespace braze::trace
