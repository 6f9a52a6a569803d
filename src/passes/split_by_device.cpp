#include "passes/split_by_device.h"

#include <algorithm>
#include <functional>

#include "graph/raises.h"
#include "passes/rewrite.h"
#include "passes/symbols.h"

namespace braze::passes {
namespace {

class Splitter {
 public:
  explicit Splitter(const Graph& g) : g_(g), level_(g.nodes().size(), 0), free_(g.nodes().size(), false) {}

  std::vector<Piece> run() {
    if (!g_.writebacks.empty() || !g_.size_symbols.empty() || !symbol_definitions(g_).empty()) return {};
    for (ValueId v : g_.outputs)
      if (v.valid() && !g_.value(v).node.valid()) return {};
    if (!assign_levels()) return {};
    pieces_.resize(1 + *std::max_element(level_.begin(), level_.end()),
                   Piece{Graph(g_.shared_arena()), false, {}, {}, {}});
    for (ValueId v : g_.outputs)
      if (v.valid()) leaves(v);
    for (size_t p = 0; p < pieces_.size(); ++p) find_inputs(p);
    std::vector<Piece> out;
    for (size_t p = 0; p < pieces_.size(); ++p)
      if (build(p)) out.push_back(std::move(pieces_[p]));
    return out;
  }

 private:
  bool on_cpu(ValueId v) const { return g_.type(v).device.type == DeviceType::CPU; }
  bool touches_cpu(const Node& n) const {
    bool any = false;
    Graph::for_each_operand(n, [&](ValueId v) { any |= on_cpu(v); });
    for (ValueId v : n.outputs) any |= v.valid() && on_cpu(v);
    return any;
  }

  // As an input of a piece.
  graph::InputKind kind_of(ValueId v) const {
    const graph::Value& value = g_.value(v);
    if (value.node.valid()) return graph::InputKind::Argument;
    graph::InputKind kind = g_.inputs[value.index].kind;
    return kind == graph::InputKind::Constant ? graph::InputKind::Buffer : kind;
  }

  // Even levels run on the GPU alone. A node's level is the first of its side at which all that it reads is there.
  bool assign_levels() {
    size_t effects = 0, sides[2] = {0, 0};
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.node(NodeId(i));
      size_t level = 0, side = touches_cpu(n);
      Graph::for_each_operand(n, [&](ValueId v) {
        if (NodeId from = g_.value(v).node; from.valid()) level = std::max(level, level_[from.index]);
      });
      bool effect = graph::op_traits(n.op) & graph::kEffect || n.op == Op::Extern;
      free_[i] = side == 0 && graph::op_class(n.op) == graph::OpClass::View;
      if (effect) level = std::max(level, effects);
      if (!free_[i]) {
        level += level % 2 != side;
        ++sides[side];
      }
      if (effect) effects = level;
      level_[i] = level;
    }
    return sides[0] && sides[1];
  }

  size_t level(ValueId v) const { return level_[g_.value(v).node.index]; }

  void leaves(ValueId v) {
    std::vector<ValueId>& outputs = pieces_[level(v)].outputs;
    if (std::find(outputs.begin(), outputs.end(), v) == outputs.end()) outputs.push_back(v);
  }

  template <class F>
  void for_each_node(size_t piece, F&& f) {
    for (size_t i = 0; i < level_.size(); ++i)
      if (level_[i] == piece) f(g_.node(NodeId(i)));
  }

  void find_inputs(size_t piece) {
    std::vector<ValueId>& inputs = pieces_[piece].inputs;
    std::function<void(ValueId)> read = [&](ValueId v) {
      NodeId from = g_.value(v).node;
      if (from.valid() && level_[from.index] == piece) return;
      if (from.valid() && free_[from.index]) {
        Graph::for_each_operand(g_.node(from), read);
        return;
      }
      if (std::find(inputs.begin(), inputs.end(), v) != inputs.end()) return;
      inputs.push_back(v);
      if (from.valid()) leaves(v);
    };
    for_each_node(piece, [&](const Node& n) { Graph::for_each_operand(n, read); });
  }

  // False: nothing of it is wanted.
  bool build(size_t piece) {
    Piece& p = pieces_[piece];
    bool wanted = !p.outputs.empty();
    for_each_node(piece, [&](const Node& n) {
      wanted |= (graph::op_traits(n.op) & graph::kEffect) != 0 || graph::may_raise(g_, n);
    });
    if (!wanted) return false;
    std::vector<graph::Input> inputs;
    for (ValueId v : p.inputs) inputs.push_back({v, kind_of(v)});
    Rewriter r(g_, inputs);
    std::function<void(ValueId)> provide = [&](ValueId v) {
      if (r.map(v).valid()) return;
      const Node& n = g_.node(g_.value(v).node);
      Graph::for_each_operand(n, provide);
      r.copy(n);
    };
    for_each_node(piece, [&](const Node& n) {
      Graph::for_each_operand(n, provide);
      r.copy(n);
      if (piece % 2 && touches_cpu(n)) p.why.push_back(describe(n));
    });
    for (ValueId v : p.outputs) r.out().outputs.push_back(r.map(v));
    p.graph = std::move(r.out());
    p.on_gpu = piece % 2 == 0;
    return true;
  }

  std::string describe(const Node& n) const {
    std::string name(n.op == Op::Extern ? n.extern_name : graph::op_name(n.op));
    if (!n.loc.valid()) return name;
    const graph::Location& l = g_.locations()[n.loc];
    return name + " (" + l.file + ":" + std::to_string(l.line) + ")";
  }

  const Graph& g_;
  std::vector<size_t> level_;  // per node: its piece
  std::vector<bool> free_;     // per node: a view, which costs nothing to repeat
  std::vector<Piece> pieces_;
};

}  // namespace

std::vector<Piece> split_by_device(const Graph& graph) { return Splitter(graph).run(); }

}  // namespace braze::passes
