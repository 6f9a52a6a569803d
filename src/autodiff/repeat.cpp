#include "autodiff/repeat.h"

#include <algorithm>
#include <map>
#include <utility>

#include "autodiff/copier.h"
#include "autodiff/cost.h"
#include "passes/symbols.h"

namespace braze::autodiff {

using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::ValueId;

namespace {

class Repeater {
 public:
  explicit Repeater(const Graph& g)
      : g_(g), out_(g.shared_arena()), copier_(g, out_), may_(g.nodes().size()), read_(g.values().size()) {
    for (size_t i = 0; i < may_.size(); ++i) {
      const Node& n = g.node(NodeId(i));
      may_[i] = n.checkpoint.region && !n.checkpoint.again && is_recompute(n.checkpoint.keep) &&
                repeat(g, n) != Repeat::Never;
    }
    for (const auto& [symbol, node] : passes::symbol_definitions(g)) may_[node] = false;
  }

  Graph run() {
    for (const graph::Input& in : g_.inputs) copier_.input(in.value, in.kind);
    for (const Node& n : g_.nodes()) {
      if (n.checkpoint.again) {
        add_again(n);
        continue;
      }
      copier_.node(n);
      out_.node(NodeId(out_.nodes().size() - 1)).checkpoint = {};
    }
    for (ValueId v : g_.outputs) out_.outputs.push_back(copier_.map(v));
    for (const graph::Writeback& w : g_.writebacks)
      out_.writebacks.push_back({copier_.map(w.input), copier_.map(w.value)});
    out_.size_symbols = g_.size_symbols;
    return std::move(out_);
  }

 private:
  // Whether the backward of `region` computes the value again.
  bool is_again(ValueId v, uint32_t region) const {
    NodeId n = g_.value(v).node;
    return n.valid() && may_[n.index] && g_.node(n).checkpoint.region == region && !read_[v.index];
  }

  // A node of the backward, over what its checkpoint computed again; that comes first.
  void add_again(const Node& n) {
    uint32_t region = n.checkpoint.region;
    std::vector<ValueId> open;
    auto missing = [&](const Node& of) {
      bool any = false;
      Graph::for_each_operand(of, [&](ValueId v) {
        if (!is_again(v, region) || again_.count({region, v.index})) return;
        open.push_back(v);
        any = true;
      });
      return any;
    };
    missing(n);
    while (!open.empty()) {
      ValueId v = open.back();
      const Node& of = g_.node(g_.value(v).node);
      if (again_.count({region, v.index})) {
        open.pop_back();
      } else if (!missing(of)) {
        copy(of, region);
        open.pop_back();
      }
    }
    copy(n, region);
  }

  // Over the values that were computed again for `region`; the results of a forward node become such values.
  void copy(const Node& n, uint32_t region) {
    std::vector<std::pair<ValueId, ValueId>> before;
    auto set = [&](ValueId v, ValueId to) {
      before.emplace_back(v, copier_.map(v));
      copier_.set(v, to);
    };
    Graph::for_each_operand(n, [&](ValueId v) {
      if (is_again(v, region))
        set(v, again_.at({region, v.index}));
      else if (NodeId by = g_.value(v).node; by.valid() && g_.node(by).checkpoint.region != region)
        read_[v.index] = true;
    });
    bool forward = !n.checkpoint.again;
    if (forward)
      for (ValueId v : n.outputs)
        if (v.valid()) set(v, ValueId());
    copier_.node(n);
    out_.node(NodeId(out_.nodes().size() - 1)).checkpoint.again = true;
    if (forward)
      for (ValueId v : n.outputs)
        if (v.valid()) again_[{region, v.index}] = copier_.map(v);
    for (auto it = before.rbegin(); it != before.rend(); ++it) copier_.set(it->first, it->second);
  }

  const Graph& g_;
  Graph out_;
  Copier copier_;
  std::vector<bool> may_;   // per node: a checkpoint computes it again
  std::vector<bool> read_;  // per value of a checkpoint: the backward of others reads it as it is
  std::map<std::pair<uint32_t, uint32_t>, ValueId> again_;  // by region and value
};

}  // namespace

bool has_checkpoints(const Graph& g) {
  return std::any_of(g.nodes().begin(), g.nodes().end(),
                     [](const Node& n) { return n.checkpoint.region && !n.checkpoint.again; });
}

Graph repeat_checkpoints(const Graph& g) { return Repeater(g).run(); }

}  // namespace braze::autodiff
