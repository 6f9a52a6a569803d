// mode="reduce-overhead": a compiled graph recorded as a CUDA Graph and replayed.
//
// The first calls run as they are; then the graph is recorded once per set of argument sizes. A replay copies the
// arguments to the recorded addresses; what stays where it is (parameters, values that another recording left,
// arguments that lay at one address in all calls so far, such as a cache) must lie where it lay, else it is recorded
// anew. A result that is still alive is never overwritten: it is copied out, or, where it is soon dropped (values saved
// for a backward, gradients) or large, lent: the recording is not replayed while somebody holds it, and a second one
// takes its turn. Where large results are held longer than that, they are copied after all. Recordings that lend have
// memory pools of their own; the others of a graph share one. A graph that cannot be recorded runs as it is; the log's
// topic graph_breaks says why.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launch/compiled_graph.h"

namespace braze::launch {

enum class Placement : uint8_t {
  Copied,  // may lie anywhere: its values are copied, once it was seen to move
  Stays,   // expected where it was
};

// May be asked for from several threads; calls that overlap run as they are.
class ReplayedGraph {
 public:
  // `inputs`: one per graph input; those of constants do not matter. Results from `copied_results` on are lent;
  // those before are where they are many bytes and soon dropped.
  ReplayedGraph(const CompiledGraph& graph, std::vector<Placement> inputs, size_t copied_results);
  ~ReplayedGraph();
  ReplayedGraph(const ReplayedGraph&) = delete;
  ReplayedGraph& operator=(const ReplayedGraph&) = delete;

  // As CompiledGraph::run, with or without the GIL. True: it was replayed, and results that are lent lie where every
  // replay of this recording puts them.
  bool run(CompiledGraph::Call& call);

 private:
  struct Recording;
  struct Recordings;
  using Key = std::vector<int64_t>;

  Recordings* find(const CompiledGraph::Call& call);
  Recording* choose(Recordings& all, const CompiledGraph::Call& call);
  // By where note() found the arguments.
  bool fits(const Recording& r, const Recordings& all, const CompiledGraph::Call& call) const;
  bool record(Recording& r, const Recordings& all, const CompiledGraph::Call& call);
  void replay(Recording& r, CompiledGraph::Call& call) const;
  size_t copied(const Recordings& all) const;  // results of a recording that is made now
  void give_up(const std::string& why);

  const CompiledGraph& graph_;
  std::vector<Placement> inputs_;
  size_t copied_results_;
  ReplayFacts facts_;
  std::map<Key, Recordings> recordings_;
  Key key_;  // of the call under way
  struct Objects;
  std::unique_ptr<Objects> objects_;
  std::atomic<bool> busy_ = false;
};

// Says in the log's topic graph_breaks why something is not recorded.
void log_not_recorded(const std::string& why);

// Arguments are copied, all else stays.
std::vector<Placement> placements(const graph::Graph& graph);

}  // namespace braze::launch
