// Operators without rows that look for values in tensors.
#include <bit>
#include <cmath>

#include "passes/builder.h"

namespace braze::passes {
namespace {

constexpr int64_t kMostTests = 64, kMostBoundaries = 4096;

// (elements, test_elements, assume_unique, invert): each is compared with each, where eager, too, does not sort; or
// with a number.
void is_in(Builder& b) {
  bool invert = b.flag(3);
  auto* elements = std::get_if<ValueId>(&b.args.at(0));
  auto* tests = std::get_if<ValueId>(&b.args.at(1));
  if (!tests) return b.set(0, b.call(invert ? Op::ne_Scalar : Op::eq_Scalar, {b.tensor(0), b.args[1]}));
  auto n = b.arena().as_const(b.arena().product(b.type(*tests).sizes));
  if (!n || *n == 0 || *n > kMostTests) throw NoRule{};
  ValueId flat = b.view(*tests, {b.k(*n)});
  ValueId found;
  if (elements)
    found = b.call(Op::eq_Tensor, {b.unsqueeze(*elements, static_cast<int64_t>(b.rank(*elements))), flat});
  else
    found = b.call(Op::eq_Scalar, {flat, b.args[0]});
  found = b.call(Op::any_dim, {found, b.k(-1), false});
  b.set(0, invert ? b.unary(Op::logical_not, found) : found);
}

// The place where x would be put into sorted `bounds`, by the steps that eager takes.
void search(Builder& b, Arg x, ValueId bounds, bool right) {
  auto n = b.rank(bounds) == 1 ? b.arena().as_const(b.type(bounds).sizes[0]) : std::nullopt;
  if (!n || *n == 0 || *n > kMostBoundaries) throw NoRule{};
  if (auto* v = std::get_if<ValueId>(&x))
    if (b.type(*v).dtype != b.type(bounds).dtype || b.type(*v).device != b.type(bounds).device) throw NoRule{};
  const TensorType& out = b.result(0);
  ValueId low = b.full(out.sizes, b.k(0), DType::I64, out.device);
  ValueId high = b.full(out.sizes, b.k(*n), DType::I64, out.device);
  for (int steps = std::bit_width(static_cast<uint64_t>(*n)); steps > 0; --steps) {
    ValueId middle = b.call(Op::bitwise_right_shift_Tensor_Scalar, {b.add(low, high), b.k(1)});
    ValueId bound = b.call(Op::index_Tensor, {bounds, TensorList{b.call(Op::clamp_max, {middle, b.k(*n - 1)})}});
    ValueId stop = std::holds_alternative<ValueId>(x) ? b.call(right ? Op::gt_Tensor : Op::ge_Tensor, {bound, x})
                                                      : b.call(right ? Op::gt_Scalar : Op::ge_Scalar, {bound, x});
    ValueId open = b.call(Op::lt_Tensor, {low, high});
    ValueId up = b.call(Op::logical_and, {open, b.unary(Op::logical_not, stop)});
    high = b.where(b.call(Op::logical_and, {open, stop}), middle, high);
    low = b.where(up, b.add(middle, b.k(1)), low);
  }
  b.set(0, low);
}

// (self, boundaries, out_int32, right)
void bucketize(Builder& b) { search(b, b.args.at(0), b.tensor(1), b.flag(3)); }

// (sorted_sequence, self, out_int32, right, side, sorter)
void searchsorted(Builder& b) {
  auto* side = std::get_if<std::string>(&b.args.at(4));
  if (b.optional_tensor(5).valid()) throw NoRule{};
  search(b, b.args.at(1), b.tensor(0), side ? *side == "right" : b.flag(3));
}

// (self, bins, min, max): how many elements lie in each part of [min, max], by the steps that eager takes on a CPU. The
// last part has its end; what lies outside counts nowhere. Without min and max they are the data's, which eager looks
// at.
void histc(Builder& b) {
  constexpr int64_t kMostBins = int64_t{1} << 20;  // numbers of bins are exact in float
  ValueId x = b.tensor(0);
  const TensorType type = b.type(x);
  const int64_t bins = b.integer(1);
  const double low = b.number(2), high = b.number(3);
  const bool single = type.dtype == DType::F32;
  if ((!single && type.dtype != DType::F64) || type.device.type != DeviceType::CPU) throw NoRule{};
  if (bins < 1 || bins > kMostBins || !std::isfinite(low) || !std::isfinite(high) || !(low < high)) throw NoRule{};
  // The edges are of the elements' type, and so is what is computed of them.
  const double first = single ? static_cast<float>(low) : low, last = single ? static_cast<float>(high) : high;
  const double width = single ? static_cast<float>(last) - static_cast<float>(first) : last - first;
  if (!std::isfinite(width) || !(width > 0)) throw NoRule{};
  x = b.view(x, {b.arena().product(type.sizes)});
  ValueId part = b.div(b.mul(b.sub(x, first), static_cast<double>(bins)), width);
  part = b.call(Op::clamp_max, {part, static_cast<double>(bins - 1)});
  ValueId inside = b.call(Op::logical_and, {b.call(Op::ge_Scalar, {x, first}), b.call(Op::le_Scalar, {x, last})});
  part = b.cast(b.where(inside, part, static_cast<double>(bins)), DType::I64);
  ValueId counts = b.full({b.k(bins + 1)}, b.k(0), type.dtype, type.device);
  ValueId ones = b.full(b.type(x).sizes, b.k(1), type.dtype, type.device);
  counts = b.call(Op::index_put, {counts, TensorList{part}, ones, true});
  b.set(0, b.call(Op::slice_Tensor, {counts, b.k(0), b.k(0), b.k(bins), b.k(1)}));
}

}  // namespace

DecomposeRule search_rule(Op op) {
  switch (op) {
    case Op::isin_Tensor_Tensor:
    case Op::isin_Tensor_Scalar: return is_in;
    default: return nullptr;
  }
}

std::span<const NamedRule> search_rules() {
  static constexpr NamedRule kRules[] = {
      {"aten::isin.Scalar_Tensor", is_in},         {"aten::bucketize.Tensor", bucketize},
      {"aten::bucketize.Scalar", bucketize},       {"aten::searchsorted.Tensor", searchsorted},
      {"aten::searchsorted.Scalar", searchsorted}, {"aten::histc", histc},
  };
  return kRules;
}

}  // namespace braze::passes
