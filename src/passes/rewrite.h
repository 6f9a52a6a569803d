// Making a new graph from an old one, node by node in order.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace braze::passes {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::NodeId;
using graph::Op;
using graph::TensorList;
using graph::ValueId;

class Rewriter {
 public:
  // The new graph starts with the inputs, locations and size symbols of the old one.
  explicit Rewriter(const Graph& from);
  // It starts with values of the old one as inputs of these kinds.
  Rewriter(const Graph& from, const std::vector<graph::Input>& inputs);

  Graph& out() { return out_; }
  ValueId map(ValueId old) const { return old.valid() ? map_[old.index] : old; }
  void replace(ValueId old, ValueId now) { map_[old.index] = now; }
  // The node's arguments with operands mapped into the new graph.
  std::vector<Arg> map_args(const Node& node) const;
  // Appends the node as it is, over mapped operands.
  NodeId copy(const Node& node);
  NodeId copy(const Node& node, std::vector<Arg> mapped_args);
  // Maps outputs and writebacks; the rewriter is spent.
  Graph finish();

 private:
  const Graph& from_;
  Graph out_;
  std::vector<ValueId> map_;
};

// Which values leave the graph: outputs, writebacks, and what these may alias through views. Two such values must stay
// two (the user may write to one of them), and a copy that makes one must stay a copy.
std::vector<bool> escaping(const Graph& g);

uint64_t hash_of(const std::vector<Arg>& args);
bool is_number(const Graph& g, const Arg& a, double value);  // as an integer or not; 0.0 is not -0.0
bool is_one(const Graph& g, const Arg& a);
bool is_one_or_absent(const Graph& g, const Node& n, size_t i);  // argument i
std::vector<uint32_t> use_counts(const Graph& g);  // per value: operands, outputs and writebacks that are it
bool same_args(const std::vector<Arg>& a, const std::vector<Arg>& b);  // bit-equal doubles: 0.0 is not -0.0, nan is nan
bool holds_all_of(DType wide, DType narrow);  // every value of one dtype has its place in the other
bool same_type(const TensorType& a, const TensorType& b);
bool is_reshape(Op op);  // its operand in other sizes

}  // namespace braze::passes
