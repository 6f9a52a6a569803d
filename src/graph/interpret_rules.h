// What the rules of the graph interpreter share, one file of rules per family of operators. Internal to graph/.
#pragma once
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/interpret.h"

namespace braze::graph::host {

using Dims = std::vector<int64_t>;
using Numbers = std::vector<double>;

int64_t count(const Dims& sizes);
double rounded(double v, DType d);

// Calls f(index) for every index of a row-major tensor, in order.
template <class F>
void for_each_index(const Dims& sizes, F&& f) {
  Dims index(sizes.size(), 0);
  for (int64_t n = count(sizes); n-- > 0;) {
    f(index);
    for (size_t d = sizes.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
    }
  }
}

size_t flat_index(const Dims& sizes, const Dims& index);
// The element of t at an index that is broadcast to it.
double at(const HostTensor& t, const Dims& index);

double sum(const Numbers& v);
double mean(const Numbers& v);
double variance(const Numbers& v, double correction);
double extreme(const Numbers& v, bool max);  // NaN wins
double sigmoid(double v);
double vector_norm(const Numbers& v, double p);
Dims broadcast(const std::vector<const HostTensor*>& tensors);  // their sizes, broadcast

// A run of one graph: the elements of its values so far.
struct State {
  const Graph& graph;
  const sym::Env& given;                           // of size symbols
  std::unordered_map<uint32_t, int64_t> unbacked;  // what nodes found for their symbols
  std::vector<HostTensor> values;
  uint64_t draws = 0;  // from the random generator

  int64_t eval(Expr e) const;
};

// One node, evaluated: its arguments by position, and its results.
class HostCall {
 public:
  HostCall(State& state, const Node& node) : node(node), state_(state) {}

  const Node& node;
  Op op() const { return node.op; }

  // Arguments.
  bool has(size_t i) const { return i < node.args.size() && std::holds_alternative<ValueId>(node.args[i]); }
  bool none(size_t i) const { return i >= node.args.size() || std::holds_alternative<NoneArg>(node.args[i]); }
  const HostTensor& tensor(size_t i) const { return of(std::get<ValueId>(node.args.at(i))); }
  std::vector<const HostTensor*> tensors(size_t i) const;  // of a list; nullptr where there is none
  double number(size_t i) const;
  double number(size_t i, double otherwise) const { return none(i) ? otherwise : number(i); }
  HostTensor operand(size_t i) const;  // a tensor or a number
  int64_t integer(size_t i) const { return eval(std::get<Expr>(node.args.at(i))); }
  Dims integers(size_t i) const;
  size_t dim(size_t i, size_t rank) const { return wrapped(integer(i), rank); }
  // A dimension or a list of them; all where there are none.
  std::vector<bool> dims(size_t i, size_t rank) const;
  bool flag(size_t i) const;
  std::string text(size_t i) const;
  int64_t eval(Expr e) const { return state_.eval(e); }
  static size_t wrapped(int64_t d, size_t rank) {
    return static_cast<size_t>(d < 0 ? d + static_cast<int64_t>(rank) : d);
  }

  // Results.
  bool wants(size_t k = 0) const { return k < node.outputs.size() && node.outputs[k].valid(); }
  Dims sizes(size_t k = 0) const;
  DType dtype(size_t k = 0) const { return state_.graph.type(node.outputs[k]).dtype; }
  // Rounds to the result's dtype. InternalError where these are not as many elements as its sizes say.
  void give(size_t k, Numbers elements);
  void give(Numbers elements) { give(0, std::move(elements)); }
  // Of a result of which nothing but the type is defined.
  void leave_undefined(size_t k);
  template <class F>
  void each(size_t k, F&& f) {  // f(index) is the element there
    if (!wants(k)) return;
    Numbers out;
    for_each_index(sizes(k), [&](const Dims& index) { out.push_back(f(index)); });
    give(k, std::move(out));
  }
  template <class F>
  void each(F&& f) {
    each(0, std::forward<F>(f));
  }
  // Of the first n arguments, broadcast.
  template <class F>
  void elementwise(size_t n, F&& f) {
    std::vector<HostTensor> in;
    for (size_t i = 0; i < n; ++i) in.push_back(operand(i));
    Numbers v(n);
    each([&](const Dims& index) {
      for (size_t i = 0; i < n; ++i) v[i] = at(in[i], index);
      return f(v);
    });
  }
  template <class F>
  void unary(F&& f) {
    elementwise(1, [&](const Numbers& v) { return f(v[0]); });
  }
  template <class F>
  void binary(F&& f) {
    elementwise(2, [&](const Numbers& v) { return f(v[0], v[1]); });
  }

  // A size that only this node knows.
  void bind(Expr symbol, int64_t value);
  Expr size_of_result(size_t k, size_t d) const { return state_.graph.type(node.outputs[k]).sizes.at(d); }
  // The next number of the random generator: one of i64, as a double.
  double draw();
  State& state() { return state_; }

 private:
  const HostTensor& of(ValueId v) const { return state_.values[v.index]; }

  State& state_;
};

// Evaluates a node; nullptr: no rule.
using Rule = void (*)(HostCall&);
Rule pointwise_rule(Op);
Rule reduce_rule(Op);
Rule view_rule(Op);
Rule index_rule(Op);
Rule matmul_rule(Op);
Rule conv_rule(Op);     // and pooling
Rule factory_rule(Op);  // and random
Rule norm_rule(Op);     // and softmax
Rule loss_rule(Op);
Rule misc_rule(Op);
Rule quantize_rule(Op);
Rule distance_rule(Op);
Rule search_rule(Op);
Rule rule_of(Op);
// Of operators without a row.
Rule extern_rule(std::string_view name);
Rule reduce_rule(std::string_view name);
Rule move_rule(std::string_view name);  // copies of views, and what else moves elements
Rule index_rule(std::string_view name);
Rule search_rule(std::string_view name);
Rule polynomial_rule(std::string_view name);
Rule quantize_rule(std::string_view name);
Rule factory_rule(std::string_view name);
Rule distance_rule(std::string_view name);
Rule loss_rule(std::string_view name);
Rule norm_rule(std::string_view name);
Rule linalg_rule(std::string_view name);
Rule conv_rule(std::string_view name);
// A node that makes or reads complex numbers; false: it is none, or left to the other rules.
bool interpret_complex(State&, const Node&);

}  // namespace braze::graph::host
