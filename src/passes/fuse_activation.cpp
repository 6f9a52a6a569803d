#include "passes/fuse_activation.h"

#include <optional>

#include "graph/narrow_product.h"
#include "passes/rewrite.h"

namespace braze::passes {
namespace {

enum class Activation : char { None, Relu, Gelu };

class Fuser {
 public:
  Fuser(const Graph& g, const Targets& targets)
      : g_(g),
        targets_(targets),
        uses_(use_counts(g)),
        fused_(g.nodes().size(), Activation::None),
        gone_(g.nodes().size(), false) {}

  Graph run() {
    for (size_t i = 0; i < g_.nodes().size(); ++i) fuse(i);
    Rewriter r(g_);
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.node(NodeId(i));
      if (gone_[i]) {
        r.replace(n.outputs[0], r.map(std::get<ValueId>(n.args[0])));
      } else if (fused_[i] != Activation::None) {
        std::vector<Arg> args = r.map_args(n);
        args.emplace_back(fused_[i] == Activation::Gelu);
        NodeId made = r.out().add_node(Op::Extern, std::move(args), {g_.type(n.outputs[0])}, n.origin(),
                                       "aten::_addmm_activation", {-1});
        r.replace(n.outputs[0], r.out().node(made).outputs[0]);
      } else {
        r.copy(n);
      }
    }
    return r.finish();
  }

 private:
  void fuse(size_t i) {
    const Node& n = g_.node(NodeId(i));
    Activation kind = n.op == Op::relu ? Activation::Relu : Activation::None;
    if (n.op == Op::gelu && n.args.size() > 1)
      if (auto* how = std::get_if<std::string>(&n.args[1]); how && *how == "tanh") kind = Activation::Gelu;
    if (kind == Activation::None) return;
    auto* x = std::get_if<ValueId>(&n.args[0]);
    if (!x || !same_type(g_.type(*x), g_.type(n.outputs[0]))) return;
    std::optional<NodeId> product = product_of(*x);
    if (!product || !takes(g_.node(*product), kind) || g_.node(*product).checkpoint != n.checkpoint) return;
    if (graph::is_narrow_product(g_, g_.node(*product), targets_)) return;  // its kernel takes in all that follows
    fused_[product->index] = kind;
    gone_[i] = true;
  }

  // The addmm that this is, perhaps in another shape, and that nothing else reads.
  std::optional<NodeId> product_of(ValueId v) const {
    for (;;) {
      NodeId from = g_.value(v).node;
      if (!from.valid() || uses_[v.index] != 1) return std::nullopt;
      const Node& n = g_.node(from);
      if (n.op == Op::addmm) return from;
      if (!is_reshape(n.op)) return std::nullopt;
      v = std::get<ValueId>(n.args[0]);
    }
  }

  bool takes(const Node& n, Activation kind) const {
    const TensorType& t = g_.type(n.outputs[0]);
    auto* bias = std::get_if<ValueId>(&n.args[0]);
    bool half = t.dtype == DType::BF16 || t.dtype == DType::F16;
    return targets_.of(t.device).fuses_epilogues && (half || (t.dtype == DType::F32 && kind == Activation::Relu)) &&
           bias && g_.type(*bias).dim() == 1 && g_.type(*bias).sizes[0] == t.sizes[1] && n.args.size() == 5 &&
           is_one(g_, n.args[3]) && is_one(g_, n.args[4]);
  }

  const Graph& g_;
  const Targets& targets_;
  std::vector<uint32_t> uses_;     // per value
  std::vector<Activation> fused_;  // per node: what a product ends with
  std::vector<bool> gone_;         // per node: an activation that its product applies
};

}  // namespace

Graph fuse_activation(const Graph& g, const Targets& targets) { return Fuser(g, targets).run(); }

}  // namespace braze::passes
