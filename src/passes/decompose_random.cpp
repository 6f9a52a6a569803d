// Random operators that are functions of uniform or normal numbers: where these are drawn by seeds, since eager draws
// for each of them in a way of its own.
#include <cmath>
#include <numbers>

#include "passes/builder.h"

namespace braze::passes {
namespace {

// Numbers for each element of the result, in float or double.
ValueId drawn(Builder& b, Op op) {
  const TensorType& out = b.result(0);
  DType t = out.dtype == DType::F64 ? DType::F64 : DType::F32;
  return b.call(op, {IntList{out.sizes}, t, NoneArg{}, out.device, NoneArg{}});
}

void no_generator(Builder& b, size_t i) {
  if (!std::holds_alternative<NoneArg>(b.args.at(i))) throw NoRule{};
}

// (self, mean, deviation, generator)
void log_normal(Builder& b) {
  no_generator(b, 3);
  if (!(b.number(2) > 0)) throw NoRule{};
  b.set(0, b.unary(Op::exp, b.add(b.mul(drawn(b, Op::randn), b.number(2)), b.number(1))));
}

// (self, median, sigma, generator)
void cauchy(Builder& b) {
  no_generator(b, 3);
  if (!(b.number(2) > 0)) throw NoRule{};
  ValueId angle = b.mul(b.sub(drawn(b, Op::rand), 0.5), std::numbers::pi);
  b.set(0, b.add(b.mul(b.unary(Op::tan, angle), b.number(2)), b.number(1)));
}

// (self, p, generator): tries until one succeeds.
void geometric(Builder& b) {
  no_generator(b, 2);
  double p = b.number(1);
  if (!(p > 0 && p < 1)) throw NoRule{};
  ValueId tries = b.div(b.unary(Op::log1p, b.unary(Op::neg, drawn(b, Op::rand))), std::log1p(-p));
  b.set(0, b.call(Op::clamp_min, {b.unary(Op::ceil, tries), b.k(1)}));
}

// (self, noise, lower, upper, training, generator): the result, and the slopes that were drawn; outside of training the
// mean slope, and the noise as it was.
void rrelu(Builder& b) {
  ValueId x = b.tensor(0);
  double lower = b.number(2), upper = b.number(3);
  if (!b.flag(4)) {
    b.set(0, b.where(b.call(Op::gt_Scalar, {x, b.k(0)}), x, b.mul(x, (lower + upper) / 2)));
    return b.set(1, b.tensor(1));
  }
  no_generator(b, 5);
  if (!(lower <= upper)) throw NoRule{};
  ValueId slope = b.cast(b.add(b.mul(drawn(b, Op::rand), upper - lower), lower), b.type(x).dtype);
  slope = b.where(b.call(Op::le_Scalar, {x, b.k(0)}), slope, 1.0);
  b.set(0, b.mul(x, slope));
  b.set(1, slope);
}

}  // namespace

DecomposeRule random_rule(const Node& n) {
  switch (n.op) {
    case Op::rrelu_with_noise_functional: return rrelu;
    default: break;
  }
  if (n.extern_name == "aten::log_normal") return log_normal;
  if (n.extern_name == "aten::cauchy") return cauchy;
  if (n.extern_name == "aten::geometric") return geometric;
  return nullptr;
}

}  // namespace braze::passes
