// Terms: what rules over graphs look for and what they put in its place, as text.
//
//   ?x           a tensor
//   #c           a number that is known, or a tensor without dimensions that is filled with one
//   2, -0.0, inf that number; 0 is not -0.0
//   _            any argument
//   ...          any further arguments; stands last
//   mul(a, b)    a node of that operator: without a point of any overload (aten::mul.Tensor, aten::mul.Scalar), with
//   one
//                of that overload alone
//   word         a part that the caller knows by this name (Matcher)
//
// The two operands of operators that do not care for their order match either way. A name that stands twice is one
// argument twice.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/graph.h"
#include "passes/builder.h"

namespace braze::passes {

struct Term {
  enum class Kind : uint8_t { Tensor, Number, Literal, Any, Rest, Call, Part };
  Kind kind = Kind::Any;
  std::string name;   // of a variable, an operator ("aten::mul") or a part
  double number = 0;  // Literal
  std::vector<Term> args;
};
Term parse_term(std::string_view text);  // InternalError with the place

// What the names of a term stand for: arguments of the graph that was searched. The names lie in the term.
class Bindings {
 public:
  const Arg* find(std::string_view name) const;
  ValueId tensor(std::string_view name) const;  // InternalError: none of that name
  void add(std::string_view name, Arg arg) { all_.emplace_back(name, std::move(arg)); }
  size_t size() const { return all_.size(); }
  void shrink(size_t size) { all_.resize(size); }

 private:
  std::vector<std::pair<std::string_view, Arg>> all_;
};

// Of the float types that `nearest` knows.
bool has_digits(DType dtype);
// The number of that type nearest to it; nullopt: it is smaller or larger than all that have all digits.
std::optional<double> nearest(double number, DType dtype);
// Of an int, a double, a bool, or a tensor without dimensions that is filled with one.
std::optional<double> known_number(const Graph& g, const Arg& a);

class Matcher {
 public:
  // Whether a value is the part of that name; what it finds below is its own affair.
  using IsPart = std::function<bool(std::string_view part, ValueId v)>;
  explicit Matcher(const Graph& g, IsPart is_part = {}) : g_(g), is_part_(std::move(is_part)) {}

  // Whether the node is what the term, a call, describes; `names` gets what its names stand for and `below` the nodes
  // that it consists of besides. Both are as before where it is not.
  bool matches(const Term& term, const Node& node, Bindings& names, std::vector<NodeId>& below) const;

 private:
  bool argument(const Term& term, const Arg& arg, Bindings& names, std::vector<NodeId>& below) const;
  bool arguments(const Term& term, const std::vector<const Arg*>& args, Bindings& names,
                 std::vector<NodeId>& below) const;

  const Graph& g_;
  IsPart is_part_;
};

// Writes what the term says; its names stand for arguments of the new graph. Operators are named with their overload.
Arg write(Builder& b, const Term& term, const std::function<Arg(std::string_view name)>& named);

}  // namespace braze::passes
