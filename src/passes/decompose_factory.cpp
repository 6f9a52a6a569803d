// Tensors that are made of numbers: windows of signals, spaced numbers; and normal numbers around a tensor's.
#include <cmath>
#include <numbers>

#include "passes/builder.h"

namespace braze::passes {
namespace {

constexpr double kPi = std::numbers::pi;

ValueId count_up(Builder& b, Expr n) {
  const TensorType& out = b.result(0);
  if (out.dtype != DType::F32 && out.dtype != DType::F64) throw NoRule{};
  return b.call(Op::arange_start_step, {b.k(0), n, b.k(1), out.dtype, NoneArg{}, out.device, NoneArg{}});
}

// (length, whether it is periodic, parameters, ...): f(positions, the last position), of which a periodic window leaves
// the last one out.
template <class F>
void window(Builder& b, F&& f) {
  int64_t length = b.integer(0);
  auto* said = std::get_if<bool>(&b.args.at(1));
  if (length < 1) throw NoRule{};
  ValueId positions = count_up(b, b.k(length));
  if (length == 1) return b.set(0, b.full(b.result(0).sizes, 1.0, b.result(0).dtype, b.result(0).device));
  b.set(0, f(positions, static_cast<double>(!said || *said ? length : length - 1)));
}

double parameter(const Builder& b, size_t i, double otherwise) {
  auto* d = i < b.args.size() ? std::get_if<double>(&b.args[i]) : nullptr;
  return d ? *d : otherwise;
}

void raised_cosine(Builder& b, double alpha, double beta) {
  window(b, [&](ValueId i, double last) {
    return b.add(b.mul(b.unary(Op::cos, b.mul(i, 2 * kPi / last)), -beta), alpha);
  });
}
void hann(Builder& b) { raised_cosine(b, 0.5, 0.5); }
void hamming(Builder& b) { raised_cosine(b, parameter(b, 2, 0.54), parameter(b, 3, 0.46)); }
void blackman(Builder& b) {
  window(b, [&](ValueId i, double last) {
    ValueId angle = b.mul(i, kPi / last);
    auto wave = [&](double times, double factor) { return b.mul(b.unary(Op::cos, b.mul(angle, times)), factor); };
    return b.add(b.sub(wave(4, 0.08), wave(2, 0.5)), 0.42);
  });
}
void bartlett(Builder& b) {
  window(b, [&](ValueId i, double last) {
    ValueId up = b.mul(i, 2 / last);
    ValueId late = b.call(Op::gt_Scalar, {i, std::floor(last / 2)});
    return b.where(late, b.call(Op::rsub_Scalar, {up, 2.0, b.k(1)}), up);
  });
}
void kaiser(Builder& b) {
  double beta = parameter(b, 2, 12);
  window(b, [&](ValueId i, double last) {
    ValueId x = b.sub(b.mul(i, 2 / last), 1.0);
    ValueId inside = b.call(Op::clamp_min, {b.call(Op::rsub_Scalar, {b.mul(x, x), 1.0, b.k(1)}), 0.0});
    ValueId most = b.full({}, beta, b.result(0).dtype, b.result(0).device);
    return b.div(b.unary(Op::i0, b.mul(b.unary(Op::sqrt, inside), beta)), b.unary(Op::i0, most));
  });
}

// From start to end, each half counted from its side.
ValueId spaced(Builder& b, const Arg& start, const Arg& end, int64_t steps) {
  const TensorType& out = b.result(0);
  if (steps < 1) throw NoRule{};
  ValueId i = count_up(b, b.k(steps));
  auto value = [&](const Arg& a) {
    auto* v = std::get_if<ValueId>(&a);
    if (v && b.rank(*v) != 0) throw NoRule{};
    if (v && b.type(*v).device != out.device) throw NoRule{};
    return v ? b.cast(*v, out.dtype) : b.full({}, a, out.dtype, out.device);
  };
  ValueId first = value(start), last = value(end);
  if (steps == 1) return b.call(Op::clone, {b.call(Op::expand, {first, IntList{out.sizes}, false}), NoneArg{}});
  ValueId step = b.div(b.sub(last, first), static_cast<double>(steps - 1));
  ValueId back = b.call(Op::rsub_Scalar, {i, static_cast<double>(steps - 1), b.k(1)});
  return b.where(b.call(Op::lt_Scalar, {i, static_cast<double>(steps / 2)}), b.add(b.mul(i, step), first),
                 b.sub(last, b.mul(back, step)));
}

// (start, end, steps, ...), of which one bound at least is a tensor
void linspace(Builder& b) { b.set(0, spaced(b, b.args.at(0), b.args.at(1), b.integer(2))); }
// (start, end, steps, base, ...)
void logspace(Builder& b) {
  b.set(0, b.call(Op::pow_Scalar, {b.number(3), spaced(b, b.args.at(0), b.args.at(1), b.integer(2))}));
}

// (means, deviation, generator): numbers drawn for 0 and 1, scaled as eager does it. Deviations in a tensor stay a
// call, which raises where one is negative.
void normal(Builder& b) {
  const TensorType& out = b.result(0);
  if (!std::holds_alternative<NoneArg>(b.args.at(2)) || (out.dtype != DType::F32 && out.dtype != DType::F64) ||
      b.type(b.tensor(0)).dtype != out.dtype || !(b.number(1) >= 0))
    throw NoRule{};
  ValueId drawn = b.call(Op::randn, {IntList{out.sizes}, out.dtype, NoneArg{}, out.device, NoneArg{}});
  b.set(0, b.add(b.mul(drawn, b.number(1)), b.tensor(0)));
}

}  // namespace

std::span<const NamedRule> factory_rules() {
  static constexpr NamedRule kRules[] = {
      {"aten::hann_window", hann},
      {"aten::hann_window.periodic", hann},
      {"aten::hamming_window", hamming},
      {"aten::hamming_window.periodic", hamming},
      {"aten::hamming_window.periodic_alpha", hamming},
      {"aten::hamming_window.periodic_alpha_beta", hamming},
      {"aten::blackman_window", blackman},
      {"aten::blackman_window.periodic", blackman},
      {"aten::bartlett_window", bartlett},
      {"aten::bartlett_window.periodic", bartlett},
      {"aten::kaiser_window", kaiser},
      {"aten::kaiser_window.periodic", kaiser},
      {"aten::kaiser_window.beta", kaiser},
      {"aten::linspace.Tensor_Tensor", linspace},
      {"aten::linspace.Tensor_Scalar", linspace},
      {"aten::linspace.Scalar_Tensor", linspace},
      {"aten::logspace", logspace},
      {"aten::logspace.Tensor_Tensor", logspace},
      {"aten::logspace.Tensor_Scalar", logspace},
      {"aten::logspace.Scalar_Tensor", logspace},
      {"aten::normal.Tensor_float", normal},
  };
  return kRules;
}

}  // namespace braze::passes
