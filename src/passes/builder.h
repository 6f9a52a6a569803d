// What decomposition rules write with: calls that infer their result types. Internal to passes/.
#pragma once
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "graph/shape.h"
#include "passes/rewrite.h"

namespace braze::passes {

using graph::DoubleList;
using graph::IntList;
using graph::NoneArg;
using sym::Expr;

// Thrown: this node is not decomposed.
struct NoRule : InternalError {
  NoRule() : InternalError("a rule gave up where nothing else is there") {}
};

class Builder {
 public:
  Builder(Graph& out, const Node& node, std::vector<Arg> mapped_args, const Graph& from)
      : node(node), args(std::move(mapped_args)), from(from), g_(out) {}

  const Node& node;
  const std::vector<Arg> args;  // over the new graph's values
  const Graph& from;

  // Reading the node.
  ValueId tensor(size_t i) const;           // NoRule when it is none
  ValueId optional_tensor(size_t i) const;  // invalid when none
  bool flag(size_t i) const;
  int64_t integer(size_t i) const;
  double number(size_t i) const;  // a constant int, double or bool
  const std::vector<Expr>& ints(size_t i) const;
  bool mask(size_t i, size_t k) const;      // element k of a bool list
  size_t dim(size_t i, size_t rank) const;  // wrapped
  void refuse_complex(ValueId v) const {
    if (is_complex(type(v).dtype)) throw NoRule{};
  }
  bool wants(size_t output) const { return node.outputs.at(output).valid(); }
  const TensorType& result(size_t output) const { return from.type(node.outputs.at(output)); }

  // Writing.
  const TensorType& type(ValueId v) const { return g_.type(v); }
  size_t rank(ValueId v) const { return type(v).dim(); }
  sym::ExprArena& arena() const { return g_.arena(); }
  Expr k(int64_t v) const { return arena().constant(v); }
  std::vector<ValueId> calls(Op op, std::vector<Arg> args);
  ValueId call(Op op, std::vector<Arg> args) { return calls(op, std::move(args))[0]; }
  // Of an operator whose type no shape function knows.
  std::vector<ValueId> calls(Op op, std::vector<Arg> args, std::vector<TensorType> types) {
    return g_.node(g_.add_node(op, std::move(args), std::move(types), node.origin().step())).outputs;
  }

  ValueId add(Arg a, Arg b) { return call(Op::add_Tensor, {std::move(a), std::move(b), k(1)}); }
  ValueId sub(Arg a, Arg b) { return call(Op::sub_Tensor, {std::move(a), std::move(b), k(1)}); }
  ValueId mul(Arg a, Arg b) { return call(Op::mul_Tensor, {std::move(a), std::move(b)}); }
  ValueId div(Arg a, Arg b) { return call(Op::div_Tensor, {std::move(a), std::move(b)}); }
  ValueId where(Arg c, Arg a, Arg b) { return call(Op::where_self, {std::move(c), std::move(a), std::move(b)}); }
  ValueId unary(Op op, ValueId v) { return call(op, {v}); }
  ValueId cast(ValueId v, DType dtype);
  ValueId compute(ValueId v) { return v.valid() ? cast(v, compute_dtype(type(v).dtype)) : v; }  // halves in float
  ValueId sum(ValueId v, const std::vector<int64_t>& dims, bool keep);
  ValueId mean(ValueId v, const std::vector<int64_t>& dims, bool keep);
  ValueId amax(ValueId v, const std::vector<int64_t>& dims, bool keep);
  // Of floats. The result's dtype, where one is given, is that of what is added up.
  ValueId vector_norm(ValueId v, Arg order, Arg dims, bool keep, const Arg& dtype);
  // Of magnitudes or their squares, without a last root; of float and double.
  ValueId power_sum(ValueId v, double order, const Arg& dims, bool keep);
  // (variance, mean), dimensions kept, without correction.
  std::pair<ValueId, ValueId> var_mean(ValueId v, const std::vector<int64_t>& dims);
  ValueId view(ValueId v, std::vector<Expr> sizes);
  ValueId unsqueeze(ValueId v, int64_t d) { return call(Op::unsqueeze, {v, k(d)}); }
  // [C] seen as [1, C, 1, ...] of this rank.
  ValueId per_channel(ValueId v, size_t rank);
  Expr count(ValueId v, const std::vector<int64_t>& dims) const;  // elements over these dimensions
  ValueId full(std::vector<Expr> sizes, Arg value, DType dtype, Device device);
  IntList list(const std::vector<int64_t>& dims) const;

  // Eager raises this row of loop/faults.def for some elements of v, where the node runs on a CPU.
  void check(ValueId v, std::string fault);
  // The same where an element is not 0 to size - 1.
  void check_index(ValueId v, std::string fault, Expr size);

  // Makes v the node's result: cast to its dtype, and with the layout that the result promises.
  void set(size_t output, ValueId v);
  std::vector<std::pair<ValueId, ValueId>> results;  // old value, new value

 private:
  Graph& g_;
};

// Puts what rule(Builder&) writes in the node's place. False, and nothing is replaced: the rule gave up, or answered
// false; nodes that it wrote until then are without users, and dce drops them.
template <class Rule>
bool rewrite(Rewriter& r, const Node& node, const Graph& from, Rule&& rule) {
  Builder b(r.out(), node, r.map_args(node), from);
  try {
    if constexpr (std::is_same_v<decltype(rule(b)), bool>) {
      if (!rule(b)) return false;
    } else {
      rule(b);
    }
  } catch (const NoRule&) {
    return false;
  }
  for (const auto& [old, now] : b.results) r.replace(old, now);
  return true;
}

using DecomposeRule = void (*)(Builder&);
DecomposeRule softmax_rule(Op);
DecomposeRule norm_rule(Op);
DecomposeRule norm_backward_rule(Op);
DecomposeRule loss_rule(Op);
DecomposeRule misc_rule(Op);
DecomposeRule quantize_rule(Op);
DecomposeRule distance_rule(Op);
DecomposeRule bag_rule(Op);
DecomposeRule search_rule(Op);
DecomposeRule random_rule(const Node&);  // where numbers are drawn by seeds
// Operators without a row, by name.
struct NamedRule {
  std::string_view name;
  DecomposeRule rule;
};
std::span<const NamedRule> copy_rules();
std::span<const NamedRule> search_rules();
std::span<const NamedRule> few_rules();
std::span<const NamedRule> loss_rules();
std::span<const NamedRule> polynomial_rules();
std::span<const NamedRule> quantize_rules();
std::span<const NamedRule> factory_rules();
std::span<const NamedRule> distance_rules();
// Lists of tensors; false: not one of them.
bool decompose_foreach(Builder&);

}  // namespace braze::passes
