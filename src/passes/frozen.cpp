#include "passes/frozen.h"

#include <algorithm>

#include "graph/raises.h"
#include "passes/rewrite.h"

namespace braze::passes {
namespace {

constexpr int64_t kSmall = 64 << 10;  // bytes: as good as nothing to keep

bool is_known(const Graph& g, sym::Expr e) { return g.arena().as_const(e).has_value(); }

bool is_static(const Graph& g, const TensorType& t) {
  auto known = [&](sym::Expr e) { return is_known(g, e); };
  return std::all_of(t.sizes.begin(), t.sizes.end(), known) && std::all_of(t.strides.begin(), t.strides.end(), known) &&
         known(t.offset);
}

// Numbers among its arguments are the same in every call.
bool is_static(const Graph& g, const Node& n) {
  return std::all_of(n.args.begin(), n.args.end(), [&](const Arg& a) {
    if (auto* e = std::get_if<sym::Expr>(&a)) return is_known(g, *e);
    auto* l = std::get_if<graph::IntList>(&a);
    return !l || std::all_of(l->v.begin(), l->v.end(), [&](sym::Expr e) { return is_known(g, e); });
  });
}

int64_t bytes(const Graph& g, ValueId v) {
  const TensorType& t = g.type(v);
  int64_t n = size_of(t.dtype);
  for (sym::Expr e : t.sizes) n *= *g.arena().as_const(e);
  return n;
}

bool is_pure(const Graph& g, const Node& n) {
  return is_static(g, n) && n.op != Op::Extern && n.op != Op::check && !(graph::op_traits(n.op) & graph::kEffect) &&
         graph::op_class(n.op) != graph::OpClass::Random && !graph::may_raise(g, n);
}

class Splitter {
 public:
  explicit Splitter(const Graph& g)
      : g_(g),
        frozen_(frozen_values(g)),
        escapes_(escaping(g)),
        wanted_(g.values().size(), false),
        hoisted_(g.values().size(), false),
        sources_(g.values().size(), 0),
        costs_(g.values().size(), false),
        in_rest_(g.nodes().size(), false) {}

  FrozenSplit run() {
    weigh();
    divide();
    FrozenSplit out{Graph(g_.shared_arena()), Graph(g_.shared_arena()), {}};
    make(out);
    rest(out);
    return out;
  }

 private:
  const Node& node(size_t i) const { return g_.node(NodeId(i)); }

  // How much memory a frozen value is made of, and whether making it costs much.
  void weigh() {
    for (size_t i = 0; i < g_.inputs.size(); ++i) {
      ValueId v = g_.inputs[i].value;
      if (frozen_[v.index]) sources_[v.index] = bytes(g_, v);
    }
    for (const Node& n : g_.nodes()) {
      int64_t sum = 0;
      bool costs = graph::op_row(n.op).cost >= graph::Cost::Expensive;
      Graph::for_each_operand(n, [&](ValueId v) { sum += sources_[v.index], costs |= costs_[v.index]; });
      for (ValueId v : n.outputs)
        if (v.valid() && frozen_[v.index]) sources_[v.index] = sum, costs_[v.index] = costs;
    }
  }

  bool is_worth(const Node& n) const {
    if (graph::op_class(n.op) == graph::OpClass::View) return false;
    return std::all_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) {
      if (!v.valid()) return true;
      const int64_t size = bytes(g_, v), of = sources_[v.index];
      return frozen_[v.index] && !escapes_[v.index] && (of > 0 || costs_[v.index]) && size <= std::max(of, kSmall);
    });
  }

  void divide() {
    for (ValueId v : g_.outputs)
      if (v.valid()) wanted_[v.index] = true;
    for (const graph::Writeback& w : g_.writebacks) wanted_[w.value.index] = true;
    for (size_t i = g_.nodes().size(); i-- > 0;) {
      const Node& n = node(i);
      auto any = [&](const std::vector<bool>& of) {
        return std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) { return v.valid() && of[v.index]; });
      };
      if (any(frozen_)) {
        if (!any(wanted_)) continue;
        if (is_worth(n)) {
          for (ValueId v : n.outputs)
            if (v.valid() && wanted_[v.index]) hoisted_[v.index] = true;
          continue;
        }
      }
      in_rest_[i] = true;
      Graph::for_each_operand(n, [&](ValueId v) { wanted_[v.index] = true; });
    }
  }

  void make(FrozenSplit& out) {
    std::vector<bool> needed = hoisted_;
    std::vector<bool> nodes(g_.nodes().size(), false);
    for (size_t i = g_.nodes().size(); i-- > 0;) {
      for (ValueId v : node(i).outputs) nodes[i] = nodes[i] || (v.valid() && needed[v.index]);
      if (nodes[i]) Graph::for_each_operand(node(i), [&](ValueId v) { needed[v.index] = true; });
    }
    std::vector<graph::Input> inputs;
    for (uint32_t i = 0; i < g_.inputs.size(); ++i) {
      graph::Input in = g_.inputs[i];
      if (!needed[in.value.index]) continue;
      if (in.kind == graph::InputKind::Constant) in.kind = graph::InputKind::Buffer;
      inputs.push_back(in);
      out.sources.push_back(i);
    }
    Rewriter r(g_, inputs);
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (!nodes[i]) continue;
      r.copy(node(i));
      for (ValueId v : node(i).outputs)
        if (v.valid() && hoisted_[v.index]) r.out().outputs.push_back(r.map(v));
    }
    out.made = std::move(r.out());
  }

  void rest(FrozenSplit& out) {
    Rewriter r(g_);
    for (size_t i = 0; i < in_rest_.size(); ++i) {
      if (in_rest_[i]) {
        r.copy(node(i));
        continue;
      }
      for (ValueId v : node(i).outputs)
        if (v.valid() && hoisted_[v.index]) r.replace(v, r.out().add_input(g_.type(v), graph::InputKind::Buffer));
    }
    out.rest = r.finish();
  }

  const Graph& g_;
  std::vector<bool> frozen_, escapes_;  // per value
  std::vector<bool> wanted_, hoisted_;  // per value: read in the rest; an output of `made`
  std::vector<int64_t> sources_;        // per frozen value: bytes that it is made of
  std::vector<bool> costs_;             // per frozen value
  std::vector<bool> in_rest_;           // per node
};

}  // namespace

std::vector<bool> frozen_inputs(const Graph& g) {
  std::vector<bool> out;
  for (const graph::Input& in : g.inputs) {
    bool written = std::any_of(g.writebacks.begin(), g.writebacks.end(),
                               [&](const graph::Writeback& w) { return w.input == in.value; });
    out.push_back(in.kind != graph::InputKind::Argument && !written && is_static(g, g.type(in.value)));
  }
  return out;
}

std::vector<bool> frozen_values(const Graph& g) {
  std::vector<bool> out(g.values().size(), false);
  std::vector<bool> inputs = frozen_inputs(g);
  for (size_t i = 0; i < inputs.size(); ++i) out[g.inputs[i].value.index] = inputs[i];
  for (const Node& n : g.nodes()) {
    bool frozen = is_pure(g, n);
    Graph::for_each_operand(n, [&](ValueId v) { frozen = frozen && out[v.index]; });
    for (ValueId v : n.outputs) frozen = frozen && (!v.valid() || is_static(g, g.type(v)));
    for (ValueId v : n.outputs)
      if (v.valid()) out[v.index] = frozen;
  }
  return out;
}

FrozenSplit split_frozen(const Graph& g) { return Splitter(g).run(); }

}  // namespace braze::passes
