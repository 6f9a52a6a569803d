// Pointwise operators: dtype by promotion, sizes by broadcast, strides as TensorIterator chooses them.
#include "graph/shape_rules.h"

namespace braze::graph {
namespace {

enum class Result : uint8_t { Promote, Float, Bool, First };

struct Rule {
  size_t first, count;  // the operands among the arguments
  Result result;
  bool floats_only = false;  // integers raise, or take another way
  bool swapped = false;      // the iterator sees the second operand first
};

std::optional<Rule> rule_of(const Call& c) {
  using R = Result;
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (c.op) {
    case Op::add_Tensor: case Op::add_Scalar: case Op::sub_Tensor: case Op::sub_Scalar: case Op::mul_Tensor: case Op::mul_Scalar:
    case Op::rsub_Scalar: case Op::pow_Tensor_Tensor: case Op::pow_Tensor_Scalar: case Op::pow_Scalar:
    case Op::remainder_Tensor: case Op::remainder_Scalar: case Op::remainder_Scalar_Tensor: case Op::fmod_Tensor:
    case Op::fmod_Scalar: case Op::floor_divide: case Op::floor_divide_Scalar: case Op::maximum: case Op::minimum:
    case Op::max_other: case Op::min_other: case Op::fmax: case Op::fmin: return Rule{0, 2, R::Promote};
    case Op::rsub_Tensor: return Rule{0, 2, R::Promote, false, true};
    case Op::div_Tensor: case Op::div_Scalar: case Op::atan2: case Op::copysign_Tensor: case Op::copysign_Scalar:
    case Op::xlogy_Tensor: return Rule{0, 2, R::Float};
    case Op::div_Tensor_mode: case Op::div_Scalar_mode: return Rule{0, 2, c.none(2) ? R::Float : R::Promote};
    case Op::hypot: case Op::logaddexp: case Op::logaddexp2: return Rule{0, 2, R::Promote, true};
    case Op::eq_Tensor: case Op::eq_Scalar: case Op::ne_Tensor: case Op::ne_Scalar: case Op::lt_Tensor: case Op::lt_Scalar:
    case Op::le_Tensor: case Op::le_Scalar: case Op::gt_Tensor: case Op::gt_Scalar: case Op::ge_Tensor: case Op::ge_Scalar:
    case Op::logical_and: case Op::logical_or: case Op::logical_xor: return Rule{0, 2, R::Bool};
    case Op::logical_not: case Op::isnan: case Op::isneginf: case Op::isposinf: case Op::signbit: return Rule{0, 1, R::Bool};
    case Op::isinf: case Op::isfinite: return Rule{0, 1, R::Bool, true};
    case Op::bitwise_and_Tensor: case Op::bitwise_and_Scalar: case Op::bitwise_or_Tensor: case Op::bitwise_or_Scalar:
    case Op::bitwise_xor_Tensor: case Op::bitwise_xor_Scalar: case Op::bitwise_left_shift_Tensor:
    case Op::bitwise_left_shift_Tensor_Scalar: case Op::bitwise_right_shift_Tensor: case Op::bitwise_right_shift_Tensor_Scalar:
    case Op::op_and_Tensor: case Op::op_or_Tensor: case Op::op_xor_Tensor: case Op::op_and_Scalar: case Op::op_or_Scalar:
      return Rule{0, 2, R::Promote};
    case Op::bitwise_not: case Op::neg: case Op::sign: case Op::positive: case Op::abs: case Op::floor: case Op::ceil:
    case Op::trunc: case Op::round: case Op::relu: case Op::nan_to_num: return Rule{0, 1, R::First};
    case Op::frac: case Op::square: case Op::round_decimals: case Op::sgn: return Rule{0, 1, R::First, true};
    case Op::sqrt: case Op::rsqrt: case Op::reciprocal: case Op::exp: case Op::exp2: case Op::expm1: case Op::log: case Op::log2:
    case Op::log10: case Op::log1p: case Op::sin: case Op::cos: case Op::tan: case Op::asin: case Op::acos: case Op::atan:
    case Op::sinh: case Op::cosh: case Op::tanh: case Op::asinh: case Op::acosh: case Op::atanh: case Op::erf: case Op::erfc:
    case Op::erfinv: case Op::lgamma: case Op::digamma: case Op::sigmoid: case Op::sinc: case Op::logit:
      return Rule{0, 1, R::Float};
    case Op::deg2rad: case Op::rad2deg: return Rule{0, 1, R::First, true};
    case Op::where_self: case Op::where_ScalarOther: case Op::where_ScalarSelf: case Op::where_Scalar: return Rule{0, 3, R::Promote};
    case Op::clamp: case Op::clamp_Tensor: return Rule{0, 3, R::Promote};
    case Op::clamp_min: case Op::clamp_min_Tensor: case Op::clamp_max: case Op::clamp_max_Tensor: return Rule{0, 2, R::Promote};
    case Op::lerp_Scalar: return Rule{0, 2, R::First, true};
    case Op::lerp_Tensor: return Rule{0, 3, R::First, true};
    case Op::addcmul: return Rule{0, 3, R::Promote};
    case Op::addcdiv: return Rule{0, 3, R::Promote, true};
    case Op::gelu: case Op::silu: case Op::leaky_relu: case Op::elu: case Op::softplus: case Op::mish: case Op::hardtanh:
    case Op::hardswish: case Op::hardsigmoid: case Op::softshrink: case Op::hardshrink: case Op::relu6:
    case Op::celu: case Op::selu: case Op::threshold: return Rule{0, 1, R::First, true};
    case Op::_prelu_kernel: return Rule{0, 2, R::First, true};
    case Op::gelu_backward: case Op::silu_backward: case Op::softplus_backward: case Op::mish_backward:
    case Op::hardtanh_backward: case Op::hardswish_backward: case Op::hardsigmoid_backward: case Op::sigmoid_backward:
    case Op::tanh_backward: case Op::softshrink_backward: case Op::hardshrink_backward: return Rule{0, 2, R::First, true};
    case Op::threshold_backward: case Op::leaky_relu_backward: return Rule{0, 2, R::First, true, true};
    case Op::native_dropout_backward: return Rule{0, 2, R::First, true};
    default: return std::nullopt;
  }
  // clang-format on
}

// Results that may not be bool: PyTorch raises, or answers with another dtype.
bool refuses_bool(Op op) {
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (op) {
    case Op::sub_Tensor: case Op::sub_Scalar: case Op::rsub_Scalar: case Op::rsub_Tensor: case Op::neg: case Op::relu: case Op::floor_divide:
    case Op::floor_divide_Scalar: case Op::pow_Tensor_Tensor: case Op::pow_Tensor_Scalar: case Op::pow_Scalar: case Op::remainder_Tensor:
    case Op::remainder_Scalar: case Op::remainder_Scalar_Tensor: case Op::fmod_Tensor: case Op::fmod_Scalar: case Op::abs: case Op::positive:
    case Op::floor: case Op::ceil: case Op::trunc: case Op::round: case Op::div_Tensor_mode: case Op::div_Scalar_mode: case Op::clamp:
    case Op::clamp_Tensor: case Op::clamp_min: case Op::clamp_max: case Op::clamp_min_Tensor: case Op::clamp_max_Tensor:
    case Op::bitwise_left_shift_Tensor: case Op::bitwise_left_shift_Tensor_Scalar: case Op::bitwise_right_shift_Tensor:
    case Op::bitwise_right_shift_Tensor_Scalar: case Op::addcmul: return true;
    default: return false;
  }
  // clang-format on
}

bool integers_only(Op op) {
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (op) {
    case Op::bitwise_and_Tensor: case Op::bitwise_and_Scalar: case Op::bitwise_or_Tensor: case Op::bitwise_or_Scalar:
    case Op::bitwise_xor_Tensor: case Op::bitwise_xor_Scalar: case Op::bitwise_not: case Op::bitwise_left_shift_Tensor:
    case Op::bitwise_left_shift_Tensor_Scalar: case Op::bitwise_right_shift_Tensor: case Op::bitwise_right_shift_Tensor_Scalar:
    case Op::op_and_Tensor: case Op::op_or_Tensor: case Op::op_xor_Tensor: case Op::op_and_Scalar: case Op::op_or_Scalar: return true;
    default: return false;
  }
  // clang-format on
}

// Copies: the layout follows the memory format argument.
Types copy_types(const Call& c) {
  const TensorType* x = c.tensor(0);
  if (!x) return std::nullopt;
  TensorType t = *x;
  t.offset = c.arena().constant(0);
  if (c.op == Op::copy) {
    if (!is_non_overlapping_and_dense(c.arena(), *x) || x->offset != t.offset) return std::nullopt;
    return one(std::move(t));
  }
  if (c.op != Op::clone && c.op != Op::_to_copy) return std::nullopt;
  size_t where = c.op == Op::clone ? 1 : 6;
  auto* format = c.get<MemoryFormatArg>(where);
  if (!format && !c.none(where)) return std::nullopt;
  if (c.op == Op::_to_copy) {
    t.dtype = c.dtype(1, t.dtype);
    if (auto* d = c.get<Device>(3)) {
      // "cuda" without an index means the current device, which only the caller knows.
      if (d->type != DeviceType::CPU && d->index < 0) return std::nullopt;
      t.device = *d;
      if (d->type == DeviceType::CPU) t.device.index = -1;
    }
  }
  if (format && format->value != 1) {
    t.strides = format_strides(c.arena(), t.sizes, format->value);
    return one(std::move(t));
  }
  return with_strides(std::move(t), preserved_strides(c.arena(), *x, c.context.decide));
}

Types masked_fill_types(const Call& c) {
  const TensorType *x = c.tensor(0), *mask = c.tensor(1);
  if (!x || !mask || mask->dtype != DType::Bool) return std::nullopt;
  auto sizes = broadcast_sizes(c.arena(), x->sizes, mask->sizes, c.context.decide);
  if (!sizes) return std::nullopt;
  return one(c.fresh(*x, x->dtype, std::move(*sizes)));
}

}  // namespace

Types pointwise_types(const Call& c) {
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (c.op) {
    case Op::_to_copy: case Op::clone: case Op::copy: case Op::contiguous: return copy_types(c);
    case Op::masked_fill_Scalar: case Op::masked_fill_Tensor: return masked_fill_types(c);
    case Op::elu_backward: {  // grad_output and, last, self or result
      const TensorType *g = c.tensor(0), *x = c.tensor(5);
      if (!g || !x || g->dtype != x->dtype || !c.same_sizes(g->sizes, x->sizes)) return std::nullopt;
      auto strides = iterator_strides(c.arena(), g->sizes, {g, x}, false, c.context.decide);
      if (!strides) return std::nullopt;
      return one(TensorType{g->dtype, g->device, g->sizes, std::move(*strides), c.arena().constant(0)});
    }
    default: break;
  }
  // clang-format on
  auto rule = rule_of(c);
  if (!rule || c.size() < rule->first + 1) return std::nullopt;
  Promotion promotion(c.context.default_dtype);
  std::vector<const TensorType*> operands;
  operands.reserve(rule->count);
  Sizes sizes;
  const TensorType* device = nullptr;
  bool scalar = false;
  bool condition_first = c.op == Op::where_self || c.op == Op::where_ScalarOther || c.op == Op::where_ScalarSelf ||
                         c.op == Op::where_Scalar;
  for (size_t k = 0; k < rule->count; ++k) {
    size_t i = rule->first + (rule->swapped ? rule->count - 1 - k : k);
    if (c.none(i)) continue;  // clamp without a bound
    if (c.is_scalar(i)) {
      promotion.scalar(c.args[i]);
      scalar = true;
      continue;
    }
    const TensorType* t = c.tensor(i);
    if (!t || is_complex(t->dtype) || t->dtype == DType::Opaque) return std::nullopt;
    if (condition_first && k == 0) {
      if (t->dtype != DType::Bool) return std::nullopt;
    } else {
      promotion.tensor(*t, c.wrapped(i));
    }
    if (operands.empty()) {
      sizes = t->sizes;
    } else if (t->sizes != sizes) {
      auto b = broadcast_sizes(c.arena(), sizes, t->sizes, c.context.decide);
      if (!b) return std::nullopt;
      sizes = std::move(*b);
    }
    // A 0-dim CPU tensor may join tensors of another device.
    if (!device || (device->device.type == DeviceType::CPU && device->dim() == 0))
      device = t;
    else if (t->device != device->device && !(t->device.type == DeviceType::CPU && t->dim() == 0))
      return std::nullopt;
    operands.push_back(t);
  }
  if (operands.empty()) return std::nullopt;
  if ((c.op == Op::clamp || c.op == Op::clamp_Tensor) && c.none(1) && c.none(2)) return std::nullopt;
  DType common = promotion.result();
  if (common == DType::Opaque || is_complex(common)) return std::nullopt;
  if (rule->floats_only && !is_floating(common)) return std::nullopt;
  if (integers_only(c.op) && !is_integral(common) && common != DType::Bool) return std::nullopt;
  if (common == DType::Bool && refuses_bool(c.op)) return std::nullopt;
  DType dtype = common;
  if (rule->result == Result::Float && !is_floating(common)) dtype = c.context.default_dtype;
  if (rule->result == Result::Bool) dtype = DType::Bool;
  if (rule->result == Result::First) {
    const TensorType* first = c.tensor(rule->first);
    if (!first) return std::nullopt;
    dtype = first->dtype;
    if (c.op != Op::native_dropout_backward)
      for (const TensorType* t : operands)
        if (t->dtype != dtype) return std::nullopt;
  }
  if (c.op == Op::round && is_integral(dtype)) return std::nullopt;
  bool wraps =
      scalar && c.op != Op::pow_Tensor_Scalar && c.op != Op::clamp && c.op != Op::clamp_min && c.op != Op::clamp_max;
  auto strides = iterator_strides(c.arena(), sizes, operands, wraps, c.context.decide);
  if (!strides) return std::nullopt;
  return one(TensorType{dtype, device->device, std::move(sizes), std::move(*strides), c.arena().constant(0)});
}

}  // namespace braze::graph
