#include "passes/channels_last.h"

#include <algorithm>
#include <unordered_map>

#include "graph/depthwise.h"
#include "graph/packed_weight.h"
#include "graph/pointwise_convolution.h"
#include "passes/builder.h"

namespace braze::passes {
namespace {

using graph::MemoryFormatArg;
using graph::OpClass;

constexpr int8_t kContiguous = 0, kChannelsLast = 2;  // PyTorch's numbers

bool is_packed(const Node& n) { return n.op == Op::Extern && n.extern_name == graph::packed_convolution(); }

// Of windows of one element, which any layout serves.
bool is_elementwise(const Graph& g, const Node& n) {
  auto* weight = std::get_if<ValueId>(&n.args[1]);
  if (!weight || g.type(*weight).dim() != 4) return false;
  const auto& sizes = g.type(*weight).sizes;
  return g.arena().is_const(sizes[2], 1) && g.arena().is_const(sizes[3], 1);
}

// `packed`: there are convolutions with packed weights beside it.
bool fits(const Graph& g, const Targets& targets, const Node& n, bool packed) {
  if (is_packed(n)) return true;
  if (n.op != Op::convolution || n.outputs.size() != 1 || !n.outputs[0].valid() || n.args.size() < 9) return false;
  const TensorType& y = g.type(n.outputs[0]);
  auto* transposed = std::get_if<bool>(&n.args[6]);
  auto* groups = std::get_if<Expr>(&n.args[8]);
  const Target& target = targets.of(y.device);
  // What a CPU multiplies in half types its library takes and gives in this layout, others it lays out anew around
  // each.
  const bool halves =
      (y.dtype == DType::BF16 && !target.slow_bf16_products) || (y.dtype == DType::F16 && !target.slow_f16_products);
  const bool prefers =
      target.prefers_channels_last || (halves && y.device.type == DeviceType::CPU) ||
      (packed && y.device.type == DeviceType::CPU && (is_elementwise(g, n) || graph::is_depthwise(g, n, targets)));
  return prefers && y.dim() == 4 && y.dtype != DType::F64 && transposed && !*transposed && groups &&
         (g.arena().is_const(*groups, 1) || graph::is_depthwise(g, n, targets) ||
          (target.prefers_channels_last && y.device.type == DeviceType::CPU));
}

class Pass {
 public:
  Pass(const Graph& g, const Targets& targets) : g_(g), targets_(targets), r_(g), escapes_(escaping(g)) {
    for (const Node& n : g.nodes()) packed_ = packed_ || is_packed(n);
    leads_.resize(escapes_.size());
    for (size_t i = g.nodes().size(); i-- > 0;) {
      const Node& n = g.node(graph::NodeId(i));
      const bool passes_on = follows(n) && std::any_of(n.outputs.begin(), n.outputs.end(),
                                                       [&](ValueId v) { return v.valid() && leads_[v.index]; });
      if (passes_on)
        Graph::for_each_operand(n, [&](ValueId v) { leads_[v.index] = true; });
      else if (fits(g, targets, n, packed_))
        leads_[std::get<ValueId>(n.args[0]).index] = true;
    }
  }

  Graph run() {
    for (const Node& n : g_.nodes()) {
      if (fits(g_, targets_, n, packed_))
        convolution(n);
      else if (follows(n) && reads_changed(n))
        follow(n);
      else if (class_of(n) == OpClass::Reduction && n.outputs.size() == 1)
        r_.copy(n);
      else
        keep(n);
    }
    return r_.finish();  // what leaves the graph was not changed
  }

 private:
  static OpClass class_of(const Node& n) { return n.op == Op::Extern ? OpClass::Extern : graph::op_class(n.op); }
  static bool follows(const Node& n) {
    return class_of(n) == OpClass::Pointwise || n.op == Op::max_pool2d_with_indices;
  }

  bool changed(ValueId old) const { return old.valid() && changed_.contains(old.index); }
  bool reads_changed(const Node& n) const {
    bool any = false;
    Graph::for_each_operand(n, [&](ValueId v) { any = any || changed(v); });
    return any;
  }

  ValueId copy_as(const Node& at, ValueId v, int8_t format) {
    return Builder(r_.out(), at, {}, g_).call(Op::clone, {v, MemoryFormatArg{format}});
  }

  // The operand in channels-last; a copy where it is in another layout, once per value.
  ValueId in_channels_last(const Node& at, ValueId old) {
    ValueId v = r_.map(old);
    if (is_channels_last(r_.out().type(v))) return v;
    auto [it, fresh] = copies_.try_emplace(old.index);
    if (fresh) it->second = copy_as(at, v, kChannelsLast);
    return it->second;
  }

  void settle(const Node& n, ValueId old, ValueId now) {
    TensorType& t = r_.out().value(now).type;
    t.strides = graph::format_strides(g_.arena(), t.sizes, kChannelsLast);
    if (escapes_[old.index]) {
      r_.replace(old, copy_as(n, now, kContiguous));
      return;
    }
    r_.replace(old, now);
    changed_[old.index] = true;
  }

  bool is_channels_last(const TensorType& t) const {
    std::vector<Expr> wanted = graph::format_strides(g_.arena(), t.sizes, kChannelsLast);
    for (size_t d = 0; d < wanted.size(); ++d)
      if (t.strides[d] != wanted[d] && !g_.arena().is_const(t.sizes[d], 1)) return false;
    return true;
  }

  void convolution(const Node& n) {
    const TensorType& recorded = g_.type(n.outputs[0]);
    const bool there = is_channels_last(recorded);
    // On a GPU one alone is faster as it is than with all that it reads and gives laid out anew.
    const bool alone = recorded.device.type == DeviceType::CUDA && !is_packed(n) && !leads_[n.outputs[0].index] &&
                       !graph::is_depthwise(g_, n, targets_) &&
                       !is_channels_last(r_.out().type(r_.map(std::get<ValueId>(n.args[0]))));
    // What is copied back takes the layout that is recorded, which is one of the two.
    if (!there && (alone || !is_contiguous(g_.arena(), recorded))) {
      keep(n);
      return;
    }
    std::vector<Arg> args = r_.map_args(n);
    args[0] = in_channels_last(n, std::get<ValueId>(n.args[0]));
    if (!is_packed(n) && !graph::is_pointwise_convolution(g_, n, targets_))
      args[1] = in_channels_last(n, std::get<ValueId>(n.args[1]));
    graph::NodeId id = r_.copy(n, std::move(args));
    if (!there) settle(n, n.outputs[0], r_.out().node(id).outputs[0]);
  }

  // Results of the changed operands' size take their layout.
  void follow(const Node& n) {
    const TensorType* shape = nullptr;
    Graph::for_each_operand(n, [&](ValueId v) {
      if (changed(v)) shape = &g_.type(v);
    });
    bool pool = n.op == Op::max_pool2d_with_indices;
    bool all = true;
    for (ValueId v : n.outputs) {
      if (!v.valid()) continue;
      const TensorType& t = g_.type(v);
      bool same =
          t.dim() == 4 && (pool || t.sizes == shape->sizes) && !escapes_[v.index] && is_contiguous(g_.arena(), t);
      all = all && same;
    }
    if (!all) {
      // Operands of any layout: the result keeps its own.
      if (pool)
        keep(n);
      else
        r_.copy(n);
      return;
    }
    std::vector<ValueId> old = n.outputs;
    graph::NodeId id = r_.copy(n);
    std::vector<ValueId> now = r_.out().node(id).outputs;
    for (size_t i = 0; i < old.size(); ++i)
      if (old[i].valid()) settle(n, old[i], now[i]);
  }

  // An operator that may depend on its operands' layout.
  void keep(const Node& n) {
    Graph::for_each_operand(n, [&](ValueId v) { restore(v, n); });
    r_.copy(n);
    // Later kernels go on with the changed one.
    for (auto& [old, now] : restored_here_) r_.replace(ValueId(static_cast<size_t>(old)), now);
    restored_here_.clear();
  }
  void restore(ValueId old, const Node& at) {
    if (!changed(old)) return;
    ValueId now = r_.map(old);
    auto [it, fresh] = contiguous_.try_emplace(old.index);
    if (now == it->second && !fresh) return;  // twice an operand
    if (fresh) it->second = copy_as(at, now, kContiguous);
    restored_here_.emplace_back(old.index, now);
    r_.replace(old, it->second);
  }

  const Graph& g_;
  const Targets& targets_;
  Rewriter r_;
  bool packed_ = false;                // a convolution has a packed weight
  std::vector<bool> escapes_, leads_;  // leads_: to another convolution, by what follows the layout
  std::unordered_map<uint32_t, bool> changed_;
  std::unordered_map<uint32_t, ValueId> copies_, contiguous_;  // by old value
  std::vector<std::pair<uint32_t, ValueId>> restored_here_;
};

}  // namespace

Graph channels_last(Graph g, const Targets& targets) {
  bool any = false;
  for (const Node& n : g.nodes()) {
    any = any || fits(g, targets, n, false);
    if (n.op == Op::convolution_backward) return g;  // reads what the forward part left in its recorded layout
  }
  if (!any) return g;
  return Pass(g, targets).run();
}

}  // namespace braze::passes
