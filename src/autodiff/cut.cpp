#include "autodiff/cut.h"

#include "autodiff/max_flow.h"
#include "base/check.h"

namespace braze::autodiff {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::ValueId;

namespace {

constexpr int64_t kInfinite = FlowNetwork::kInfinite;
constexpr uint32_t kSource = 0, kSink = 1;

// The values of the network. What a checkpoint computes again is there twice: as the checkpoint itself reads it, and as
// others do, who find it kept. (Of a view of it they find the base kept.)
class Network {
 public:
  Network(const CutProblem& problem, const std::vector<bool>& fixed)
      : p_(problem), fixed_(fixed), own_(p_.needed.size(), UINT32_MAX), others_(own_) {
    for (size_t i = 0; i < p_.needed.size(); ++i) {
      if (!p_.needed[i]) continue;
      own_[i] = others_[i] = add(ValueId(i));
      if (again(p_.graph.value(ValueId(i)).node)) others_[i] = add(ValueId(i));
    }
  }

  std::vector<bool> cut() const {
    auto in = [](uint32_t k) { return 2 + 2 * k; };
    auto out = [](uint32_t k) { return 3 + 2 * k; };
    FlowNetwork flow(static_cast<uint32_t>(2 + 2 * values_.size()));
    for (uint32_t k = 0; k < values_.size(); ++k) {
      ValueId v = values_[k];
      flow.add_edge(in(k), out(k), cost(k));
      NodeId n = p_.graph.value(v).node;
      bool kept_for_others = for_others(k) && p_.root[v.index] == v;
      if (!n.valid() || fixed_[n.index] || kept_for_others) flow.add_edge(kSource, in(k), kInfinite);
      if (!n.valid() || kept_for_others) continue;
      uint32_t region = for_others(k) ? 0 : p_.graph.node(n).checkpoint.region;
      Graph::for_each_operand(p_.graph.node(n),
                              [&](ValueId u) { flow.add_edge(out(as_read(u, region)), in(k), kInfinite); });
    }
    for (auto [v, region] : p_.reads) flow.add_edge(out(as_read(v, region)), kSink, kInfinite);
    for (ValueId v : p_.pinned) flow.add_edge(out(others_[v.index]), kSink, kInfinite);
    if (flow.run(kSource, kSink) >= kInfinite)
      throw Unsupported(Reason::UnsupportedMutation, "the backward needs an input that is overwritten");
    std::vector<bool> source_side = flow.source_side_of_last_cut(), kept(p_.needed.size());
    for (uint32_t k = 0; k < values_.size(); ++k)
      if (source_side[in(k)] && !source_side[out(k)]) kept[values_[k].index] = true;
    return kept;
  }

 private:
  // Whether the node is computed again for the backward of its checkpoint, and only for that.
  bool again(NodeId n) const {
    return n.valid() && !fixed_[n.index] && graph::is_recompute(p_.graph.node(n).checkpoint.keep);
  }
  uint32_t add(ValueId v) {
    values_.push_back(v);
    return static_cast<uint32_t>(values_.size()) - 1;
  }
  bool for_others(uint32_t number) const { return own_[values_[number].index] != number; }
  // The number of `v` for a reader in a region.
  uint32_t as_read(ValueId v, uint32_t region) const {
    NodeId n = p_.graph.value(v).node;
    return n.valid() && p_.graph.node(n).checkpoint.region == region ? own_[v.index] : others_[v.index];
  }
  int64_t cost(uint32_t number) const {
    ValueId v = values_[number];
    int64_t cost = p_.cost[v.index];
    NodeId n = p_.graph.value(v).node;
    if (!again(n)) return cost;
    // The checkpoint need not compute it again then.
    if (for_others(number)) return cost < kCopied ? (cost + 1) / 2 : cost;
    bool never = p_.graph.node(n).checkpoint.keep == graph::Keep::MustRecompute || cost >= kCopied;
    return never ? kInfinite : cost * kReluctance;
  }

  const CutProblem& p_;
  const std::vector<bool>& fixed_;
  std::vector<ValueId> values_;
  std::vector<uint32_t> own_, others_;  // per value: a number, the same where it is there once
};

}  // namespace

std::vector<ValueId> cheapest_cut(const CutProblem& problem, const std::vector<bool>& fixed) {
  std::vector<bool> kept = Network(problem, fixed).cut();
  // Of these those that are read when all of them are kept: for what is kept for others a checkpoint reads nothing.
  std::vector<bool> seen(kept.size());
  std::vector<ValueId> open, out;
  auto visit = [&](ValueId v) {
    if (!seen[v.index]) open.push_back(v);
    seen[v.index] = true;
  };
  for (const CutProblem::Read& r : problem.reads) visit(r.value);
  while (!open.empty()) {
    ValueId v = open.back();
    open.pop_back();
    NodeId n = problem.graph.value(v).node;
    if (n.valid() && !kept[v.index]) Graph::for_each_operand(problem.graph.node(n), visit);
  }
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i] && seen[i]) out.emplace_back(i);
  return out;
}

}  // namespace braze::autodiff
