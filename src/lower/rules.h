// What an operator family offers to lowering: rules that compute one element (inlined into readers), and rules that
// write nests or calls.
#pragma once
#include "lower/lowering.h"
#include "lower/val.h"

namespace braze::lower {

// One element of one result of one node.
struct Point {
  Lowering& low;
  Body& body;
  const graph::Node& node;
  graph::ValueId value;         // the result asked for
  std::span<const Expr> index;  // one expression per dimension of the result

  const TensorType& type() const { return low.source.type(value); }
  uint32_t output() const { return low.source.value(value).index; }
  DType dtype() const { return compute_dtype(type().dtype); }
  size_t args() const { return node.args.size(); }
  const graph::Arg& arg(size_t i) const { return node.args.at(i); }
  bool none(size_t i) const { return i >= node.args.size() || std::holds_alternative<graph::NoneArg>(node.args[i]); }
  // Operand i (a tensor, broadcast to the result; or a number) in the result's compute dtype, or in another one.
  Val in(size_t i) const { return in(i, dtype()); }
  Val in(size_t i, DType t) const;
  // An operand as eager's CPU kernels see it, converted to the result's dtype: what has another one is rounded to 16
  // bits.
  Val converted(size_t i) const;
  Val held(size_t i) const;    // the same on every device: for what becomes an element of the result as it is
  Val factor(size_t i) const;  // the same of a factor or divisor: where it is one number, they take it in float
  Val own(size_t i) const;     // a tensor operand in its own compute dtype; a number as bool, i64 or f64
  Val boolean(size_t i) const { return in(i, DType::Bool); }
  double number(size_t i) const;                   // a constant number
  std::optional<double> constant(size_t i) const;  // nullopt: a symbol or a tensor
  Val wrap(ValId v) const { return {&body, v}; }
  Val literal(double c) const { return wrap(body.constant(c, dtype())); }
  Val at(graph::ValueId v, std::span<const Expr> idx) const { return wrap(low.emit(body, v, idx)); }
};

// A node's operand, and a value's sizes.
inline graph::ValueId tensor(const graph::Node& node, size_t i) { return std::get<graph::ValueId>(node.args.at(i)); }
inline const std::vector<Expr>& sizes(const Lowering& low, graph::ValueId v) { return low.source.type(v).sizes; }

using ElementRule = Val (*)(const Point&);

// Rules by family; nullptr: none. A row of class Pointwise without an entry in pointwise*.cpp does not compile.
ElementRule pointwise_rule(graph::Op);
ElementRule index_rule(graph::Op);
ElementRule factory_rule(graph::Op);
ElementRule random_rule(graph::Op);  // of seeded nodes
// Whether this pointwise node (by dtypes and arguments) is one that its rule takes.
bool takes_pointwise(const graph::Graph&, const graph::Node&);
bool takes_index(const graph::Graph&, const graph::Node&);
bool takes_factory(const graph::Graph&, const graph::Node&);
bool takes_random(const graph::Node&);

// Writes the node's results as nests; false: not this one, make it an extern call.
bool lower_reduction(Lowering&, graph::NodeId);
bool takes_reduction(const graph::Graph&, const graph::Node&);
bool lower_scan(Lowering&, graph::NodeId);
bool takes_scan(const graph::Graph&, const graph::Node&);
bool lower_product(Lowering&, graph::NodeId);                // graph/narrow_product.h
void lower_depthwise(Lowering&, graph::NodeId);              // graph/depthwise.h
void lower_pointwise_convolution(Lowering&, graph::NodeId);  // graph/pointwise_convolution.h
bool lower_writes(Lowering&, graph::NodeId);                 // cat, stack, scatters
bool takes_writes(const graph::Graph&, const graph::Node&);
void lower_check(Lowering&, graph::NodeId);  // braze::check
// A value of the node's index number k (graph/raises.h), checked when it runs.
Expr checked_index(Lowering&, Body&, const graph::Node&, ValId value, size_t k);
void lower_extern(Lowering&, graph::NodeId);
// Of a call that writes to its operand `v`, the tensor at this place: which result is that memory from the start, as
// nobody wrote to it before.
std::optional<size_t> filled_result(const graph::Graph& g, const graph::Node& node, size_t place, ValueId v);

// Views. How result dimensions address the operand's: operand index j = start + sum of step * result index.
struct DimMap {
  struct Term {
    int dim = -1;
    Expr step;
  };
  Expr start;
  Term terms[2];
};
struct ViewMap {
  enum class Kind : uint8_t {
    Dims,
    Reshape,
    Bits,
    None
  } kind = Kind::None;       // Bits: same sizes, other dtype of the same width
  std::vector<DimMap> dims;  // Kind::Dims, one per operand dimension
  bool partial = false;      // the result may leave out elements of the operand
};
ViewMap view_map(Lowering&, const graph::Node&, uint32_t output);
bool is_view(const graph::Graph&, const graph::Node&);
// Whether a value that a node computes is a copy of an array on a CPU whose neighbours in a row are elsewhere. Read in
// one pass as another array it would be gathered, with its coordinates computed anew for each element.
bool turns(const graph::Graph&, ValueId);
// Element `at` of a window, counted from its buffer's start in elements of the window's dtype, which may be wider or
// narrower than the buffer's: put together from the bits of several, or a part of those of one.
ValId load_as(Body& body, DType stored, const View& window, Expr at);

}  // namespace braze::lower
