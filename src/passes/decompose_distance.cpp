// Products and distances of vectors as loops, and grids of places.
#include <cmath>

#include "passes/builder.h"

namespace braze::passes {
namespace {

void only_words(Builder& b, ValueId v) {  // eager sums halves in its own order
  if (b.type(v).dtype != DType::F32 && b.type(v).dtype != DType::F64) throw NoRule{};
}

void dot(Builder& b) {
  only_words(b, b.tensor(0));
  b.set(0, b.call(Op::sum, {b.mul(b.tensor(0), b.tensor(1)), NoneArg{}}));
}

// [..., P, M] and [..., R, M] as [..., P, R, M].
ValueId differences(Builder& b, ValueId x, ValueId y) {
  only_words(b, x);
  if (b.rank(x) < 2 || b.rank(y) < 2) throw NoRule{};
  return b.sub(b.unsqueeze(x, static_cast<int64_t>(b.rank(x)) - 1),
               b.unsqueeze(y, static_cast<int64_t>(b.rank(y)) - 2));
}

// (x1, x2, p, how). Eager computes Euclidean distances of many rows as a matrix product.
void distances(Builder& b) {
  ValueId x = b.tensor(0), y = b.tensor(1);
  double p = b.number(2);
  if (p == 2 && (std::holds_alternative<NoneArg>(b.args.at(3)) || b.integer(3) != 2)) {
    if (b.rank(x) < 2 || b.rank(y) < 2) throw NoRule{};
    auto rows = b.arena().as_const(b.type(x).sizes[b.rank(x) - 2]),
         more = b.arena().as_const(b.type(y).sizes[b.rank(y) - 2]);
    constexpr int64_t kFewRows = 25;
    bool product = !std::holds_alternative<NoneArg>(b.args[3]) && b.integer(3) == 1;
    if (product || !rows || !more || *rows > kFewRows || *more > kFewRows) throw NoRule{};
  }
  b.set(0, b.vector_norm(differences(b, x, y), p, b.list({-1}), false, NoneArg{}));
}

// (grad, x1, x2, p, distances): of x1.
void distances_backward(Builder& b) {
  ValueId grad = b.tensor(0), apart = differences(b, b.tensor(1), b.tensor(2)), distance = b.tensor(4);
  double p = b.number(3);
  auto columns = b.arena().as_const(b.type(b.tensor(1)).sizes.back());
  constexpr int64_t kManyColumns = 32;  // else the divisions, which each column repeats, cost more than a call
  if (p == 2 && (!columns || *columns < kManyColumns)) throw NoRule{};
  auto last = static_cast<int64_t>(b.rank(grad));
  ValueId slope;
  if (p == 1)
    slope = b.mul(b.unsqueeze(grad, last), b.unary(Op::sign, apart));
  else if (p == 2)
    slope =
        b.mul(b.unsqueeze(b.where(b.call(Op::eq_Scalar, {distance, 0.0}), 0.0, b.div(grad, distance)), last), apart);
  else
    throw NoRule{};
  b.set(0, b.sum(slope, {last - 1}, false));
}

// (theta, [N, C, (D,) H, W], whether the outer places are the corners of the image or of a pixel)
void affine_grid(Builder& b) {
  ValueId theta = b.tensor(0);
  const auto& sizes = b.ints(1);
  const size_t n = sizes.size() - 2, rank = n + 2;  // of the result: N, the places, coordinates
  only_words(b, theta);
  const TensorType out = b.result(0);
  auto column = [&](size_t k) {  // of theta, for each place
    ValueId v = b.call(Op::select_int, {theta, b.k(2), b.k(static_cast<int64_t>(k))});
    std::vector<Expr> spread(rank, b.k(1));
    spread[0] = out.sizes[0];
    spread[rank - 1] = b.k(static_cast<int64_t>(n));
    return b.view(v, std::move(spread));
  };
  ValueId sum = column(n);
  for (size_t k = 0; k < n; ++k) {  // the last dimension of the image comes first
    size_t d = n - 1 - k;
    auto size = b.arena().as_const(sizes[d + 2]);
    if (!size || *size < 1) throw NoRule{};
    double most = *size == 1 ? 0 : b.flag(2) ? 1 : static_cast<double>(*size - 1) / static_cast<double>(*size);
    ValueId places = b.call(Op::linspace, {*size == 1 ? 0.0 : -1.0, *size == 1 ? 0.0 : 1.0, b.k(*size), out.dtype,
                                           NoneArg{}, out.device, NoneArg{}});
    if (most != 1 && *size > 1) places = b.mul(places, most);
    std::vector<Expr> spread(rank, b.k(1));
    spread[d + 1] = b.k(*size);
    sum = b.add(sum, b.mul(b.view(places, std::move(spread)), column(k)));
  }
  b.set(0, sum);
}

// (self, other, alpha)
void add_relu(Builder& b) {
  only_words(b, b.tensor(0));
  b.set(0, b.unary(Op::relu, b.call(Op::add_Tensor, {b.tensor(0), b.tensor(1), b.args.at(2)})));
}

}  // namespace

DecomposeRule distance_rule(Op op) {
  switch (op) {
    case Op::dot:
    case Op::vdot: return dot;
    case Op::_cdist_forward: return distances;
    default: return nullptr;
  }
}

std::span<const NamedRule> distance_rules() {
  static constexpr NamedRule kRules[] = {
      {"aten::_cdist_backward", distances_backward},
      {"aten::affine_grid_generator", affine_grid},
      {"aten::_add_relu.Tensor", add_relu},
  };
  return kRules;
}

}  // namespace braze::passes
