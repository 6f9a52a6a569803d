// Sums and means of rows of a table, by bags of equal length: what a bag of unequal ones takes is a call.
#include <algorithm>
#include <optional>

#include "passes/builder.h"

namespace braze::passes {
namespace {

// Whether anything reads one of the node's results from the second on.
bool reads_more(const Graph& g, const Node& node) {
  const std::vector<uint32_t> uses = use_counts(g);
  return std::any_of(node.outputs.begin() + 1, node.outputs.end(),
                     [&](ValueId v) { return v.valid() && uses[v.index] > 0; });
}

// The length of each bag, where the offsets are 0, length, 2 * length, ... of a known length.
std::optional<int64_t> length_of(Builder& b) {
  const graph::Value& offsets = b.from.value(std::get<ValueId>(b.node.args.at(2)));
  if (!offsets.node.valid()) return std::nullopt;
  const Node& places = b.from.node(offsets.node);
  if (places.op != Op::arange_start_step) return std::nullopt;
  auto number = [&](size_t i) {
    auto* e = std::get_if<Expr>(&places.args.at(i));
    return e ? b.arena().as_const(*e) : std::nullopt;
  };
  const auto start = number(0), step = number(2);
  return start == 0 && step && *step > 0 ? step : std::nullopt;
}

// PyTorch's kernels for sums of floats name the place in the input, too: what is checked has it beside the index that
// is outside the table (loop/fault.h).
void check(Builder& b, ValueId indices, bool names_place) {
  const Expr rows = b.type(b.tensor(0)).sizes.at(0);
  if (!names_place || b.type(indices).device.type != DeviceType::CPU) return b.check_index(indices, "Bag", rows);
  const std::vector<Expr> sizes = b.type(indices).sizes;
  constexpr int64_t kPlace = int64_t{1} << 32;
  indices = b.cast(indices, DType::I64);
  ValueId places =
      b.view(b.call(Op::arange_start_step, {b.k(1), b.arena().add(b.arena().product(sizes), b.k(1)), b.k(1), DType::I64,
                                            NoneArg{}, b.type(indices).device, NoneArg{}}),
             sizes);
  ValueId there =
      b.call(Op::logical_and, {b.call(Op::ge_Scalar, {indices, b.k(0)}), b.call(Op::lt_Scalar, {indices, rows})});
  ValueId both = b.sub(b.call(Op::bitwise_and_Scalar, {indices, b.k(kPlace - 1)}), b.mul(places, b.k(kPlace)));
  b.check_index(b.where(there, indices, both), "FastBag", rows);
}

// (weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding_idx),
// of which only the bags are read, as at inference.
void embedding_bag(Builder& b) {
  enum Mode : int64_t { Sum, Mean };
  ValueId table = b.tensor(0), indices = b.tensor(1), scale = b.optional_tensor(6);
  const int64_t mode = b.integer(4), padding = b.integer(8);
  const auto length = length_of(b);
  if (!length || b.flag(7) || (mode != Sum && mode != Mean) || (scale.valid() && mode != Sum) ||
      !is_floating(b.type(table).dtype) || reads_more(b.from, b.node))
    throw NoRule{};
  const Expr bags = b.result(0).sizes.at(0);
  if (b.arena().mul(bags, b.k(*length)) != b.type(indices).sizes.at(0)) throw NoRule{};
  indices = b.view(indices, {bags, b.k(*length)});
  check(b, indices, padding < 0 && b.type(table).dtype != DType::F64);
  ValueId rows = b.compute(b.call(Op::embedding, {table, indices, b.k(-1), false, false}));
  if (scale.valid()) rows = b.mul(rows, b.unsqueeze(b.compute(b.view(scale, {bags, b.k(*length)})), 2));
  std::optional<ValueId> counts;
  if (padding >= 0) {
    ValueId there = b.call(Op::ne_Scalar, {indices, b.k(padding)});
    rows = b.where(b.unsqueeze(there, 2), rows, 0.0);
    if (mode == Mean) counts = b.call(Op::clamp_min, {b.sum(there, {1}, true), b.k(1)});
  }
  ValueId sum = b.sum(rows, {1}, false);
  if (mode == Mean) sum = b.div(sum, counts ? Arg(*counts) : Arg(static_cast<double>(*length)));
  b.set(0, sum);
}

}  // namespace

DecomposeRule bag_rule(Op op) {
  switch (op) {
    case Op::_embedding_bag:
    case Op::_embedding_bag_forward_only: return embedding_bag;
    default: return nullptr;
  }
}

}  // namespace braze::passes
