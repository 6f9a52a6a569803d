// Operators without rows that look for values in tensors.
#include <bit>

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

}  // namespace

std::span<const NamedRule> search_rules() {
  static constexpr NamedRule kRules[] = {
      {"aten::isin.Tensor_Tensor", is_in},         {"aten::isin.Tensor_Scalar", is_in},
      {"aten::isin.Scalar_Tensor", is_in},         {"aten::bucketize.Tensor", bucketize},
      {"aten::bucketize.Scalar", bucketize},       {"aten::searchsorted.Tensor", searchsorted},
      {"aten::searchsorted.Scalar", searchsorted},
  };
  return kRules;
}

}  // namespace braze::passes
