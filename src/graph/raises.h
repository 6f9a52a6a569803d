// What operators ask of the values of their operands: on a CPU eager raises where these are others.
//
// A node that may raise is not dropped with its result, unless what it asks is asked otherwise (passes/keep_checks). On
// a GPU nothing is asked here: eager finds such values in its kernels, later than the call, and ends the process's use
// of the GPU.
#pragma once
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace braze::graph {

// Each of `values` is a place in a dimension of that size: 0 to size - 1 or, with `wrap`, -size to size - 1.
struct IndexCheck {
  ValueId values;
  Expr size;
  std::string_view fault;  // a row of loop/faults.def: what eager says otherwise
  bool wrap = false;       // negative ones count from the end
  uint8_t dim = 0;         // the dimension's number in eager's words
};
// Of a gather's or scatter's indices, in the order of its arguments. Empty: it has none, or masks are among them.
std::vector<IndexCheck> index_checks(const Graph&, const Node&);

// It asks that of the index of each element which is computed, as gathers do. Others do of all, if anything of their
// result is computed.
bool asks_by_element(const Node&);
// Also where its result has no elements, as its index has none then.
bool asks_of_empty(const Node&);

// The divisor of a division of integers, where it may be 0; NoneArg where there is none.
Arg possible_zero(const Graph&, const Node&);

// Whether all elements of a view's operand are elements of its result.
bool shows_all(const Graph&, const Node& view);
// Of argument i of an operator by element, or that makes a tensor: the type says all.
bool lends_type_alone(const Node&, size_t i);

// Whether the node runs on a CPU and raises for some values of its operands.
bool may_raise(const Graph&, const Node&);

}  // namespace braze::graph
