#include "passes/cse.h"

#include <algorithm>
#include <unordered_map>

#include "passes/rewrite.h"

namespace braze::passes {

Graph cse(const Graph& g) {
  std::vector<bool> leaves = escaping(g);
  Rewriter r(g);
  struct Known {
    NodeId old, now;
    bool leaves;
  };
  std::unordered_multimap<uint64_t, Known> seen;
  seen.reserve(g.nodes().size() * 2);
  for (size_t i = 0; i < g.nodes().size(); ++i) {
    const Node& n = g.node(NodeId(i));
    std::vector<Arg> args = r.map_args(n);
    if (n.op == Op::Extern || (graph::op_traits(n.op) & (graph::kEffect | graph::kNondeterministic))) {
      r.copy(n, std::move(args));
      continue;
    }
    bool out = false;
    for (ValueId v : n.outputs) out |= v.valid() && leaves[v.index];
    uint64_t key = hash_of(args) * 31 + static_cast<uint64_t>(n.op);
    auto [first, last] = seen.equal_range(key);
    Known* match = nullptr;
    for (auto it = first; it != last && !match; ++it) {
      const Node& other = r.out().node(it->second.now);
      if (other.op != n.op || (out && it->second.leaves) || !same_args(other.args, args)) continue;
      const Node& was = g.node(it->second.old);
      // A checkpoint computes its own again.
      if (was.checkpoint.region != n.checkpoint.region || was.checkpoint.again != n.checkpoint.again) continue;
      bool same = was.outputs.size() == n.outputs.size();
      for (size_t k = 0; same && k < n.outputs.size(); ++k)
        same = was.outputs[k].valid() == n.outputs[k].valid() &&
               (!n.outputs[k].valid() || same_type(g.type(was.outputs[k]), g.type(n.outputs[k])));
      if (same) match = &it->second;
    }
    if (match) {
      Node& other = r.out().node(match->now);
      if (graph::is_save(n.checkpoint.keep)) other.checkpoint.keep = std::min(other.checkpoint.keep, n.checkpoint.keep);
      for (size_t k = 0; k < n.outputs.size(); ++k)
        if (n.outputs[k].valid()) r.replace(n.outputs[k], other.outputs[k]);
      match->leaves |= out;
      continue;
    }
    NodeId now = r.copy(n, std::move(args));
    seen.emplace(key, Known{NodeId(i), now, out});
  }
  return r.finish();
}

}  // namespace braze::passes
