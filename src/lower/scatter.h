// Nests that change computed places of a tensor. Internal to lower/.
#pragma once
#include <functional>

#include "graph/shape.h"
#include "lower/rules.h"

namespace braze::lower {

// A buffer for the node's result, filled with the elements of `from` or, when that is invalid, with zeros.
View start_from(Lowering&, const graph::Node&, graph::ValueId from);

// Calls put(place, value) for the places that one point changes, `i` being the point among those that change different
// places, `r` the one among those that run in order. The value is in the target's compute dtype.
using Put = std::function<void(std::span<const Expr> at, Val v)>;
using Change = std::function<void(Body&, std::span<const Expr> i, std::span<const Expr> r, const Put& put)>;

// Assigns to, or adds to, the target at every point of the sizes `apart` (in any order) and, within it, `in_order`.
void update(Lowering&, const graph::Node&, const View& target, std::span<const Expr> apart,
            std::span<const Expr> in_order, bool accumulate, const Change& change);

bool takes_scatter(const graph::Graph&, const graph::Node&);
bool lower_scatter(Lowering&, const graph::Node&);

// Pools, pads and resampling, at places computed or given.
ElementRule window_rule(graph::Op);
bool takes_window(const graph::Graph&, const graph::Node&);
ElementRule sample_rule(graph::Op);
bool takes_sample(const graph::Graph&, const graph::Node&);
bool takes_window_backward(const graph::Graph&, const graph::Node&);
bool lower_window_backward(Lowering&, const graph::Node&);

}  // namespace braze::lower
