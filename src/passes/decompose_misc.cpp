// Small operators that are a few primitive ones.
#include "passes/builder.h"

namespace braze::passes {
namespace {

void adaptive_avg_pool2d(Builder& b) {
  ValueId x = b.tensor(0);
  const auto& out = b.ints(1);
  if (out.size() != 2 || !b.arena().is_const(out[0], 1) || !b.arena().is_const(out[1], 1) || b.rank(x) < 3) throw NoRule{};
  auto rank = static_cast<int64_t>(b.rank(x));
  b.set(0, b.mean(b.compute(x), {rank - 2, rank - 1}, true));
}

void dropout_without_training(Builder& b) {
  auto* train = std::get_if<bool>(&b.args.at(2));
  if (!train || *train) throw NoRule{};
  b.set(0, b.call(Op::clone, {b.tensor(0), NoneArg{}}));
  if (b.wants(1)) b.set(1, b.full(b.result(1).sizes, true, DType::Bool, b.result(1).device));
}

void glu(Builder& b) {
  ValueId x = b.tensor(0);
  size_t d = b.dim(1, b.rank(x));
  auto n = b.arena().as_const(b.type(x).sizes.at(d));
  if (!n || *n % 2) throw NoRule{};
  auto part = [&](int64_t from, int64_t to) {
    return b.compute(b.call(Op::slice_Tensor, {x, b.k(static_cast<int64_t>(d)), b.k(from), b.k(to), b.k(1)}));
  };
  b.set(0, b.mul(part(0, *n / 2), b.unary(Op::sigmoid, part(*n / 2, *n))));
}

void fill(Builder& b) {
  if (auto* v = std::get_if<ValueId>(&b.args.at(1))) {
    if (b.rank(*v) != 0 || b.type(*v).device != b.result(0).device) throw NoRule{};
    ValueId value = b.cast(*v, b.result(0).dtype);
    b.set(0, b.call(Op::clone, {b.call(Op::expand, {value, IntList{b.result(0).sizes}, false}), graph::MemoryFormatArg{0}}));
  } else {
    b.set(0, b.full(b.result(0).sizes, b.args.at(1), b.result(0).dtype, b.result(0).device));
  }
}

// Tensors of sizes [0] count for the dtype alone.
void cat(Builder& b) {
  auto* list = std::get_if<TensorList>(&b.args.at(0));
  if (!list) throw NoRule{};
  TensorList rest;
  for (ValueId v : *list)
    if (b.rank(v) != 1 || !b.arena().is_const(b.type(v).sizes[0], 0)) rest.push_back(b.cast(v, b.result(0).dtype));
  if (rest.empty() || (rest.size() == list->size() && rest.size() > 1)) throw NoRule{};
  b.set(0, rest.size() == 1 ? b.call(Op::clone, {rest[0], graph::MemoryFormatArg{0}}) : b.call(Op::cat, {rest, b.args.at(1)}));
}

}  // namespace

DecomposeRule misc_rule(Op op) {
  switch (op) {
    case Op::cat: return cat;
    case Op::_adaptive_avg_pool2d: return adaptive_avg_pool2d;
    case Op::native_dropout: return dropout_without_training;
    case Op::glu: return glu;
    case Op::fill_Scalar:
    case Op::fill_Tensor: return fill;
    default: return nullptr;
  }
}

}  // namespace braze::passes
