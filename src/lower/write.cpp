// Operators that write parts of one buffer by several nests: cat and stack; the others are in scatter.cpp and
// window_backward.cpp.
#include <algorithm>

#include "lower/rules.h"
#include "lower/scatter.h"

namespace braze::lower {

using graph::Op;
using graph::ValueId;

namespace {

int dim_of(Lowering& low, const graph::Arg& a, size_t rank) {
  int64_t d = *low.arena.as_const(std::get<Expr>(a));
  return static_cast<int>(d < 0 ? d + static_cast<int64_t>(rank) : d);
}

// Legacy: 1-D tensors of size 0 take part in any cat.
bool is_skipped(Lowering& low, ValueId v, size_t rank) {
  const auto& sizes = low.source.type(v).sizes;
  return sizes.size() == 1 && rank != 1 && low.indexing.is_zero(sizes[0]);
}

void copy_into(Lowering& low, const graph::Node& node, ValueId from, const View& slice) {
  DType to = low.program.buffers[slice.buffer].dtype;
  std::vector<graph::LocId> locs = low.locs_of(from);
  if (node.loc.valid() && std::find(locs.begin(), locs.end(), node.loc) == locs.end()) locs.push_back(node.loc);
  low.pointwise_nest(low.nest_name(node), slice, std::move(locs), [&](Body& b, std::span<const Expr> index) {
    return b.cast(low.emit(b, from, index), compute_dtype(to));
  });
}

void cat(Lowering& low, const graph::Node& node) {
  ValueId out = node.outputs[0];
  const size_t rank = low.source.type(out).sizes.size();
  int d = dim_of(low, node.args[1], rank);
  View whole = low.allocate(out);
  Expr start = low.arena.constant(0);
  bool nothing = low.indexing.is_zero(whole.sizes[d]);  // still, one nest writes the buffer
  for (ValueId v : std::get<graph::TensorList>(node.args[0])) {
    if (is_skipped(low, v, rank)) continue;
    View slice = whole;
    slice.sizes = low.source.type(v).sizes;
    slice.offset = low.arena.add(whole.offset, low.arena.mul(start, whole.strides[d]));
    if (nothing || !low.indexing.is_zero(slice.sizes[d])) copy_into(low, node, v, slice);
    start = low.arena.add(start, slice.sizes[d]);
  }
}

void stack(Lowering& low, const graph::Node& node) {
  ValueId out = node.outputs[0];
  int d = dim_of(low, node.args[1], low.source.type(out).sizes.size());
  View whole = low.allocate(out);
  int64_t k = 0;
  for (ValueId v : std::get<graph::TensorList>(node.args[0])) {
    View slice = whole;
    slice.sizes = low.source.type(v).sizes;
    slice.strides.erase(slice.strides.begin() + d);
    slice.offset = low.arena.add(whole.offset, low.arena.mul(low.arena.constant(k++), whole.strides[d]));
    copy_into(low, node, v, slice);
  }
}

}  // namespace

bool takes_writes(const graph::Graph& g, const graph::Node& node) {
  switch (node.op) {
    case Op::cat:
    case Op::stack: return true;
    default: return takes_scatter(g, node) || takes_window_backward(g, node);
  }
}

bool lower_writes(Lowering& low, graph::NodeId n) {
  const graph::Node& node = low.source.node(n);
  switch (node.op) {
    case Op::cat: cat(low, node); return true;
    case Op::stack: stack(low, node); return true;
    default: return lower_scatter(low, node) || lower_window_backward(low, node);
  }
}

}  // namespace braze::lower
