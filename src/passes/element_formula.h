// What an element of a value is, as a formula of where it stands: of what a program makes by counting, comparing and
// choosing among constants alone, as the masks of attention are made.
#pragma once
#include <optional>
#include <utility>
#include <vector>

#include "passes/rewrite.h"

namespace braze::passes {

struct Element {
  sym::Expr value;  // of an integer, or a truth (0 or 1). Of a float: the truth that chooses among its numbers
  // Of a float: what it is where `value` holds, and where it does not.
  std::optional<std::pair<double, double>> numbers;
};

class ElementFormulas {
 public:
  explicit ElementFormulas(const Graph& g) : g_(g), a_(g.arena()) {}

  // A place in a tensor of these sizes: a symbol for each dimension, 0 where there is one place.
  std::vector<sym::Expr> place(const std::vector<sym::Expr>& sizes);
  // nullopt: not known, or too long to say. The formula holds where the place lies within the value.
  std::optional<Element> at(ValueId v, const std::vector<sym::Expr>& place);
  // Not e, of a truth; a comparison in the form that the formulas have: a <= b.
  sym::Expr negated(sym::Expr e);

 private:
  using Place = std::vector<sym::Expr>;
  using Found = std::optional<Element>;

  Found made(const Node& n, const TensorType& type, const Place& place);
  Found view(const Node& n, const TensorType& type, const Place& place);
  Found arithmetic(const Node& n, DType dtype, const Place& place);
  Found comparison(const Node& n, const Place& place);
  Found connective(const Node& n, DType dtype, const Place& place);
  Found where(sym::Expr condition, const Element& yes, const Element& no, DType dtype);
  Found triangle(const Node& n, DType dtype, const Place& place);
  Found concatenated(const Node& n, const TensorType& type, const Place& place);
  Found gathered(const Node& n, const TensorType& type, const Place& place);
  Found padded(const Node& n, const Place& place);
  Found scanned(const Node& n, const TensorType& type, const Place& place);
  Found highest(const Node& n, const TensorType& type, const Place& place);

  Found constant(DType dtype, const Arg& value);
  Found cast(const Element& e, DType to);
  // An operand at the place of the result, as one of that dtype; nullopt: as it is.
  Found operand(const Arg& a, const Place& place, std::optional<DType> dtype);
  Place within(const TensorType& operand, const Place& place) const;
  sym::Expr truth(const Element& e);
  sym::Expr chosen(sym::Expr condition, bool yes, bool no);
  // f of two floats, for where a truth that both depend on holds and for where it does not.
  template <class F>
  std::optional<std::pair<sym::Expr, std::pair<double, double>>> both_ways(const Element& x, const Element& y, F&& f);
  bool is_below(sym::Expr e, sym::Expr size);
  sym::Expr symbol(char prefix, size_t position, sym::Expr extent);

  const Graph& g_;
  sym::ExprArena& a_;
  std::vector<std::pair<sym::Expr, sym::Expr>> extents_;  // of the symbols of places
  int left_ = 0;                                          // values that may still be asked
  size_t depth_ = 0;                                      // of the value that is asked, below the first
  size_t inner_ = 0;  // symbols of dimensions that end within the formula: each has its own
};

}  // namespace braze::passes
