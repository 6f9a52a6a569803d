// The state of one lowering: what each graph value became, and how to read it.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "lower/body.h"
#include "lower/indexing.h"
#include "lower/lower.h"

namespace braze::lower {

using graph::NodeId;
using graph::ValueId;
using loop::View;

class Lowering {
 public:
  enum class Rules : uint8_t { All, Inlined, None };  // Inlined: no value gets a buffer for its cost
  Lowering(const graph::Graph& source, const Options& options, const Targets& targets, Rules rules = Rules::All);
  loop::Program run();

  // The element of `v` at `index` (one expression per dimension), in the compute dtype of v.
  ValId emit(Body& body, ValueId v, std::span<const Expr> index);
  // The same for an operand that is broadcast to a result with more or larger dimensions.
  ValId emit_broadcast(Body& body, ValueId v, std::span<const Expr> index, const std::vector<Expr>& sizes);

  // v as a window on a buffer; computes it if it was not.
  View realise(ValueId v);
  // The same with the strides that the graph records, for readers that depend on them.
  View realise_exact(ValueId v);
  // The value that is all of the storage which this one, as eager has it, is a view of.
  ValueId storage_of(ValueId v);
  // The same for an operand of a call of PyTorch's, which may look at the stride of a dimension of one element, too:
  // that is as recorded where the others are. Strides may be others unless `exact`.
  View operand(ValueId v, bool exact);
  bool is_realised(ValueId v) const { return states_[v.index].view.has_value(); }
  bool unused(ValueId v) const { return states_[v.index].uses == 0; }
  // A size of v is an unbacked symbol, which an extern call that makes v defines.
  bool binds_symbol(ValueId v) const {
    for (Expr e : source.type(v).sizes)
      if (arena.kind(e) == sym::Kind::Symbol && arena.symbol_kind(e) == sym::SymbolKind::Unbacked) return true;
    return false;
  }

  // A fresh buffer for v (recorded strides if they are dense, or `exact`), which becomes v's window.
  View allocate(ValueId v, bool exact = false);
  View fresh_buffer(const TensorType& type, bool exact);
  void set_view(ValueId v, View view) { states_[v.index].view = std::move(view); }

  // Axes over the dimensions of a window that have more than one element, outermost the largest stride; index[d] is the
  // variable of dimension d, or 0. Dimensions with stride 0 are not iterated.
  std::vector<loop::Axis> axes(std::span<const Expr> sizes, std::span<const Expr> strides, std::vector<Expr>& index);
  Body body() { return Body(arena, symbols, program.buffers, options_.float8_saturates); }
  // target[...] = value(index) for every element of a window; `value` is called once.
  template <class F>
  void pointwise_nest(const std::string& name, const View& target, std::vector<graph::LocId> locs, F&& value,
                      bool accumulate = false) {
    std::vector<Expr> index;
    auto outer = axes(target.sizes, target.strides, index);
    Body b = body();
    b.begin_stage({});
    ValId v = value(b, std::span<const Expr>(index));
    b.store(target.buffer, indexing.dot(index, target.strides, target.offset), v, accumulate);
    add(b.finish(name, std::move(outer)), std::move(locs));
  }
  void add(loop::Nest nest, std::vector<graph::LocId> locs);
  std::vector<graph::LocId> locs_of(ValueId v) const;  // of all nodes that v inlines
  std::string nest_name(const graph::Node& node) const;

  const graph::Graph& source;
  const Targets& targets;
  sym::ExprArena& arena;
  Symbols symbols;
  Indexing indexing;
  loop::Program program;

 private:
  enum class Way : uint8_t {
    Element,
    View,
    Reduction,
    Scan,
    Product,
    Depthwise,
    PointwiseConvolution,
    Writes,
    Check,
    Extern
  };
  struct State {
    std::optional<View> view;
    uint32_t uses = 0;    // readers, seen through views
    bool wanted = false;  // somebody needs a buffer
    bool expensive = false;
    std::vector<uint32_t> inlined;  // nodes that emit() goes through, ascending
    std::vector<uint32_t> reads;    // buffers that it loads, ascending
  };
  Way way_of(const graph::Node& node) const;
  void count_uses();
  void lower_node(NodeId n);
  void lower_view(NodeId n, ValueId v);
  void account(NodeId n, ValueId v);
  bool should_realise(const State& s) const;
  void realise_for_broadcast(ValueId v);
  bool costs_more_again(ValueId) const;
  std::optional<View> window(ValueId v);  // of a view of a realised operand
  ValId emit_view(Body& body, ValueId v, std::span<const Expr> index);
  View realise_into(ValueId v, View target);
  void lower_outputs();
  void follow(ValueId v);
  bool promised(ValueId v, const View& view);

  const Options& options_;
  Rules rules_;
  std::vector<State> states_;
  std::vector<Way> ways_;
  std::vector<BufferId> input_buffers_;
};

}  // namespace braze::lower
