#include "passes/fold_into_weights.h"

#include <optional>

#include "passes/builder.h"
#include "passes/frozen.h"

namespace braze::passes {
namespace {

// One operator between a convolution and the end of its chain.
struct Step {
  NodeId node;
  enum class Kind : uint8_t { Scale, Add, Subtract, SubtractFrom } kind;
  ValueId by;  // one number for each channel
};

class Folder {
 public:
  explicit Folder(const Graph& g) : g_(g), frozen_(frozen_values(g)), uses_(use_counts(g)), reader_(g.values().size()) {
    for (size_t i = 0; i < g.nodes().size(); ++i)
      Graph::for_each_operand(g.node(NodeId(i)), [&](ValueId v) { reader_[v.index] = NodeId(i); });
  }

  Graph run() {
    std::vector<std::vector<Step>> ending(g_.nodes().size());  // per node: the chain that it ends
    std::vector<NodeId> begins(g_.nodes().size());             // its convolution
    std::vector<bool> gone(g_.nodes().size(), false);
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      std::vector<Step> chain = chain_of(g_.node(NodeId(i)));
      if (chain.empty()) continue;
      gone[i] = true;
      for (const Step& s : chain) gone[s.node.index] = true;
      const size_t end = chain.back().node.index;
      begins[end] = NodeId(i);
      ending[end] = std::move(chain);
    }
    Rewriter r(g_);
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.node(NodeId(i));
      if (!ending[i].empty())
        fold(r, n, g_.node(begins[i]), ending[i]);
      else if (!gone[i])
        r.copy(n);
    }
    return r.finish();
  }

 private:
  static constexpr size_t kWeight = 1, kBias = 2, kTransposed = 6;

  bool takes(const Node& n) const {
    if (n.op != Op::convolution || n.args.size() < 9 || n.outputs.size() != 1 || !n.outputs[0].valid()) return false;
    auto* weight = std::get_if<ValueId>(&n.args[kWeight]);
    auto* bias = std::get_if<ValueId>(&n.args[kBias]);
    auto* transposed = std::get_if<bool>(&n.args[kTransposed]);
    const TensorType& t = g_.type(n.outputs[0]);
    return (t.dtype == DType::F32 || t.dtype == DType::F64) && t.dim() > 2 && transposed && !*transposed && weight &&
           frozen_[weight->index] && g_.type(*weight).dtype == t.dtype && (!bias || frozen_[bias->index]);
  }

  bool is_per_channel(ValueId v, const TensorType& of) const {
    if (!frozen_[v.index] || g_.type(v).dtype != of.dtype) return false;
    const auto& sizes = g_.type(v).sizes;
    if (sizes.size() + 1 < of.sizes.size() || sizes.size() > of.sizes.size()) return false;
    const size_t channel = sizes.size() + 1 - of.sizes.size();
    for (size_t d = 0; d < sizes.size(); ++d)
      if (d == channel ? sizes[d] != of.sizes[1] : !g_.arena().is_const(sizes[d], 1)) return false;
    return true;
  }

  std::optional<Step> step(ValueId v) const {
    if (uses_[v.index] != 1 || !reader_[v.index].valid()) return std::nullopt;
    const NodeId id = reader_[v.index];
    const Node& n = g_.node(id);
    const bool scale = n.op == Op::mul_Tensor, sub = n.op == Op::sub_Tensor;
    if (!scale && !sub && n.op != Op::add_Tensor) return std::nullopt;
    if (!scale && !is_one_or_absent(g_, n, 2)) return std::nullopt;
    auto *a = std::get_if<ValueId>(&n.args[0]), *b = std::get_if<ValueId>(&n.args[1]);
    const TensorType& t = g_.type(v);
    if (!a || !b || g_.type(n.outputs[0]).dtype != t.dtype || g_.type(n.outputs[0]).sizes != t.sizes)
      return std::nullopt;
    const bool first = *a == v;
    const ValueId by = first ? *b : *a;
    if (!is_per_channel(by, t)) return std::nullopt;
    return Step{id,
                scale   ? Step::Kind::Scale
                : !sub  ? Step::Kind::Add
                : first ? Step::Kind::Subtract
                        : Step::Kind::SubtractFrom,
                by};
  }

  std::vector<Step> chain_of(const Node& n) const {
    std::vector<Step> chain;
    if (!takes(n)) return chain;
    ValueId v = n.outputs[0];
    while (auto s = step(v)) {
      chain.push_back(*s);
      v = g_.node(s->node).outputs[0];
    }
    return chain;
  }

  void fold(Rewriter& r, const Node& end, const Node& convolution, const std::vector<Step>& chain) const {
    Builder b(r.out(), end, r.map_args(end), g_);
    std::vector<Arg> args = r.map_args(convolution);
    ValueId weight = std::get<ValueId>(args[kWeight]);
    ValueId bias = std::holds_alternative<ValueId>(args[kBias]) ? std::get<ValueId>(args[kBias]) : ValueId();
    const Expr channels = b.type(weight).sizes[0];
    auto flat = [&](ValueId v) { return b.call(Op::reshape, {v, IntList{{channels}}}); };
    for (const Step& s : chain) {
      ValueId by = flat(r.map(s.by));
      switch (s.kind) {
        case Step::Kind::SubtractFrom:
          weight = b.unary(Op::neg, weight);
          bias = bias.valid() ? b.sub(by, bias) : by;
          break;
        case Step::Kind::Add: bias = bias.valid() ? b.add(bias, by) : by; break;
        case Step::Kind::Subtract: bias = bias.valid() ? b.sub(bias, by) : b.unary(Op::neg, by); break;
        case Step::Kind::Scale: {
          std::vector<Expr> rows(b.rank(weight), b.k(1));
          rows[0] = channels;
          weight = b.mul(weight, b.call(Op::reshape, {by, IntList{rows}}));
          if (bias.valid()) bias = b.mul(bias, by);
        }
      }
    }
    args[kWeight] = weight;
    if (bias.valid()) args[kBias] = bias;
    TensorType type = g_.type(convolution.outputs[0]);
    NodeId made = r.out().add_node(Op::convolution, std::move(args), {std::move(type)}, convolution.origin());
    b.set(0, r.out().node(made).outputs[0]);
    for (const auto& [old, now] : b.results) r.replace(old, now);
  }

  const Graph& g_;
  std::vector<bool> frozen_;
  std::vector<uint32_t> uses_;
  std::vector<NodeId> reader_;  // per value: the last node that reads it
};

}  // namespace

Graph fold_into_weights(const Graph& g) { return Folder(g).run(); }

}  // namespace braze::passes
