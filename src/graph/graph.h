// The tensor graph: SSA over ATen operators.
//
// Semantics, once for all passes:
// - Every operator means what PyTorch's means (docs of ATen): integer overflow wraps, division by zero of integers
//   raises, NaN propagates as the operator says, float results may differ by rounding when a pass decomposes them.
// - The graph is functional: no node writes to a value. Mutations of inputs are `writebacks`, carried out in order
// after
//   all nodes. Views are operators of class View: their result shares its operand's storage only as an optimisation.
// - A value's type is what eager PyTorch gives (sizes, strides, offset of a view). Strides of values that do not leave
// the
//   graph and are no argument of an extern operator are free; those of outputs are a promise.
// - A pass may drop a node whose results are unused unless its operator has trait Effect (random, assert, write) or the
// node
//   may raise (graph/raises.h).
// - Nodes are in topological order.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "graph/op.h"
#include "graph/types.h"

namespace braze::graph {

using sym::Expr;

struct ValueTag;
struct NodeTag;
struct LocTag;
using ValueId = Id<ValueTag>;
using NodeId = Id<NodeTag>;
using LocId = Id<LocTag>;

// An argument in schema order. Optional arguments that are None are NoneArg; defaults are filled in by the recorder.
struct NoneArg {
  friend bool operator==(NoneArg, NoneArg) = default;
};
struct MemoryFormatArg {
  int8_t value;
  friend bool operator==(const MemoryFormatArg&, const MemoryFormatArg&) = default;
};  // c10::MemoryFormat
struct LayoutArg {
  int8_t value;
  friend bool operator==(const LayoutArg&, const LayoutArg&) = default;
};  // c10::Layout
struct OpaqueArg {
  uint32_t index;
  friend bool operator==(const OpaqueArg&, const OpaqueArg&) = default;
};  // into the recorder's constants (generators, objects)
using TensorList = std::vector<ValueId>;  // an invalid id stands for an undefined / None element
struct IntList {
  std::vector<Expr> v;
  friend bool operator==(const IntList&, const IntList&) = default;
};
struct DoubleList {
  std::vector<double> v;
  friend bool operator==(const DoubleList&, const DoubleList&) = default;
};
struct BoolList {
  std::vector<bool> v;
  friend bool operator==(const BoolList&, const BoolList&) = default;
};
// Expr is an int (static or symbolic); a Scalar argument is bool, Expr or double according to what the user passed.
using Arg = std::variant<NoneArg, ValueId, TensorList, bool, Expr, double, std::string, DType, Device, MemoryFormatArg,
                         LayoutArg, IntList, DoubleList, BoolList, OpaqueArg>;

// What a checkpoint (torch.utils.checkpoint) asks of a node's results: that they are kept for the backward, or computed
// again there.
enum class Keep : uint8_t { Either, MustSave, PreferSave, PreferRecompute, MustRecompute };
constexpr bool is_save(Keep k) { return k == Keep::MustSave || k == Keep::PreferSave; }
constexpr bool is_recompute(Keep k) { return k == Keep::MustRecompute || k == Keep::PreferRecompute; }
struct Checkpoint {
  uint32_t region = 0;  // 0: in none; a region within another counts as that one
  Keep keep = Keep::Either;
  bool again = false;  // in the backward of its region
  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

// Where a node comes from. What a pass puts in its place comes from there as well: add_node() asks for it.
struct Origin {
  LocId loc;
  Checkpoint checkpoint;
  // Of a step on the way to a node's results: what is to be kept are those alone.
  Origin step() const {
    Origin o = *this;
    if (is_save(checkpoint.keep)) o.checkpoint.keep = Keep::PreferRecompute;
    return o;
  }
};

struct Node {
  Op op = Op::Extern;
  std::string extern_name;          // the ATen (or custom) name with overload, only for Op::Extern
  std::vector<Arg> args;            // schema order
  std::vector<ValueId> outputs;     // tensor results, lists flattened; invalid for an undefined result
  std::vector<int32_t> list_sizes;  // per schema return: -1 a tensor, else the number of tensors of that list
  LocId loc;
  Checkpoint checkpoint;
  Origin origin() const { return {loc, checkpoint}; }
};

struct Value {
  TensorType type;
  NodeId node;         // invalid: a graph input
  uint32_t index = 0;  // which output of the node, or which input
  std::string name;    // for print; unique
};

enum class InputKind : uint8_t { Argument, Parameter, Buffer, Constant };
struct Input {
  ValueId value;
  InputKind kind = InputKind::Argument;
};

struct Location {  // the user's line
  std::string file, function, text;
  int line = 0;
};

struct Writeback {  // after the nodes: input <- value (same dtype and size as the input)
  ValueId input, value;
};

class Graph {
 public:
  explicit Graph(std::shared_ptr<sym::ExprArena> arena);

  sym::ExprArena& arena() const { return *arena_; }
  const std::shared_ptr<sym::ExprArena>& shared_arena() const { return arena_; }

  ValueId add_input(TensorType type, InputKind kind, std::string name = {});
  // Appends a node; makes one value per type. `name`: for a single-row op leave empty.
  NodeId add_node(Op op, std::vector<Arg> args, std::vector<TensorType> types, Origin origin = {},
                  std::string extern_name = {}, std::vector<int32_t> list_sizes = {});
  LocId add_location(Location loc);

  const Value& value(ValueId v) const { return values_[v]; }
  Value& value(ValueId v) { return values_[v]; }
  const TensorType& type(ValueId v) const { return values_[v].type; }
  const Node& node(NodeId n) const { return nodes_[n]; }
  Node& node(NodeId n) { return nodes_[n]; }
  const Store<NodeId, Node>& nodes() const { return nodes_; }
  const Store<ValueId, Value>& values() const { return values_; }
  const Store<LocId, Location>& locations() const { return locations_; }
  // Calls f(ValueId) for every tensor that the node reads, in order.
  template <class F>
  static void for_each_operand(const Node& node, F&& f) {
    for (const Arg& a : node.args) {
      if (auto* v = std::get_if<ValueId>(&a)) f(*v);
      if (auto* l = std::get_if<TensorList>(&a))
        for (ValueId v : *l)
          if (v.valid()) f(v);
    }
  }

  // A float of a byte is among the node's operands or results, and that is left to eager (takes_float8).
  bool leaves_float8(const Node& node) const;

  std::vector<Input> inputs;
  std::vector<ValueId> outputs;  // invalid id: None
  std::vector<Writeback> writebacks;
  std::vector<std::pair<Expr, std::pair<uint32_t, int32_t>>>
      size_symbols;  // symbol = size of input i in dimension d (d >= 0), or stride ~d (d < 0)

 private:
  std::shared_ptr<sym::ExprArena> arena_;
  Store<ValueId, Value> values_;
  Store<NodeId, Node> nodes_;
  Store<LocId, Location> locations_;
};

// Text form; parse(print(g)) prints the same text.
std::string print(const Graph&);
Graph parse(std::string_view text);  // throws InternalError with line and column
void verify(const Graph&);           // throws InternalError naming the rule and the node

}  // namespace braze::graph
