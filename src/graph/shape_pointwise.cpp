// Pointwise operators: dtype by promotion, sizes by broadcast, strides as TensorIterator chooses them.
#include <cmath>

#include "graph/shape_rules.h"

namespace braze::graph {
namespace {

// Copies: the layout follows the memory format argument.
Types copy_types(const Call& c) {
  const TensorType* x = c.tensor(0);
  if (!x) return std::nullopt;
  TensorType t = *x;
  t.offset = c.arena().constant(0);
  if (c.op == Op::copy) {
    if (const TensorType* from = c.tensor(1); from && !c.expands(from->sizes, x->sizes)) return c.refuse();
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
    if (!c.has_rank_of(*format, t.dim())) return c.refuse();
    t.strides = format_strides(c.arena(), t.sizes, format->value);
    return one(std::move(t));
  }
  return with_strides(std::move(t), preserved_strides(c.arena(), *x, c.context.decide));
}

Types masked_fill_types(const Call& c) {
  const TensorType *x = c.tensor(0), *mask = c.tensor(1);
  if (!x || !mask || mask->dtype != DType::Bool || (c.tensor(2) && c.tensor(2)->dim())) return std::nullopt;
  auto sizes = broadcast_sizes(c.arena(), x->sizes, mask->sizes, c.context.decide);
  if (!sizes) return std::nullopt;
  return one(c.fresh(*x, x->dtype, std::move(*sizes)));
}

// log_sigmoid on the CPU: the result and what its backward needs of it, row by row however the operand lies.
Types log_sigmoid_types(const Call& c) {
  const TensorType* x = c.tensor(0);
  if (!x || x->device.type != DeviceType::CPU || !accepts(c.op, x->dtype) || float8(x->dtype)) return std::nullopt;
  const TensorType t = c.fresh(*x, x->dtype, x->sizes);
  return std::vector<TensorType>{t, t};
}

// Numbers and words among the arguments that only the kernels look at.
bool takes_options(const Call& c) {
  if (c.op == Op::gelu || c.op == Op::gelu_backward)
    if (auto* kind = c.get<std::string>(c.size() - 1)) return *kind == "none" || *kind == "tanh";
  const TensorType *x = c.tensor(0), *second = c.tensor(1);
  if (c.op == Op::heaviside) return !x || !second || x->dtype == second->dtype;
  if (auto* bound = c.get<double>(1); bound && x && c.op == Op::softshrink)
    return *bound >= 0 && *bound <= largest_finite(x->dtype);
  if (auto* bound = c.get<double>(1); bound && x && c.op == Op::hardshrink)
    return !std::isfinite(*bound) || std::abs(*bound) <= largest_finite(x->dtype);
  return true;
}

// The factor of one operand of a sum is no finer than its result.
bool takes_factor(const Call& c, DType result) {
  const bool sum = c.op == Op::add_Tensor || c.op == Op::add_Scalar || c.op == Op::sub_Tensor ||
                   c.op == Op::sub_Scalar || c.op == Op::rsub_Tensor || c.op == Op::rsub_Scalar;
  if (!sum || c.size() < 3) return true;
  return c.get<double>(2) ? is_floating(result) : !c.get<bool>(2) || result == DType::Bool;
}

}  // namespace

Types pointwise_types(const Call& c) {
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (c.op) {
    case Op::_to_copy: case Op::clone: case Op::copy: case Op::contiguous: return copy_types(c);
    case Op::masked_fill_Scalar: case Op::masked_fill_Tensor: return masked_fill_types(c);
    case Op::log_sigmoid_forward: return log_sigmoid_types(c);
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
  if (!takes_options(c)) return c.refuse();
  const ResultRule& rule = op_row(c.op).result;
  if (rule.dtype == ResultDType::Own || c.size() == 0) return std::nullopt;
  Promotion promotion(c.context.default_dtype);
  std::vector<const TensorType*> operands;
  operands.reserve(rule.operands);
  Sizes sizes;
  const TensorType* device = nullptr;
  bool scalar = false;
  bool condition_first = c.op == Op::where_self || c.op == Op::where_ScalarOther || c.op == Op::where_ScalarSelf ||
                         c.op == Op::where_Scalar;
  for (size_t k = 0; k < rule.operands; ++k) {
    size_t i = rule.reversed ? rule.operands - 1 - k : k;
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
  // Eager's differences refuse booleans whatever the other operand is, of which the common dtype says nothing.
  if (op_row(c.op).accepts == Accepts::NoBoolOperand)
    for (const TensorType* t : operands)
      if (t->dtype == DType::Bool) return c.refuse();
  if ((c.op == Op::clamp || c.op == Op::clamp_Tensor) && c.none(1) && c.none(2)) return std::nullopt;
  DType common = promotion.result();
  if (common == DType::Opaque || is_complex(common)) return std::nullopt;
  if (!accepts(c.op, common)) return std::nullopt;
  if (!takes_factor(c, common)) return c.refuse();
  // Of integers there are no fractions.
  if (c.op == Op::pow_Tensor_Scalar && is_integral(common) && c.integer(1).value_or(0) < 0) return c.refuse();
  const bool rounds = c.op == Op::div_Tensor_mode || c.op == Op::div_Scalar_mode;
  if (auto* mode = c.get<std::string>(2); rounds && mode && *mode != "floor" && *mode != "trunc") return c.refuse();
  bool divides = rounds && c.none(2);  // no mode: true division
  DType dtype = common;
  switch (divides ? ResultDType::Float : rule.dtype) {
    case ResultDType::Float:
      if (!is_floating(common)) dtype = c.context.default_dtype;
      break;
    case ResultDType::Bool: dtype = DType::Bool; break;
    case ResultDType::First: {
      const TensorType* first = c.tensor(0);
      if (!first) return std::nullopt;
      dtype = first->dtype;
      if (c.op != Op::native_dropout_backward)
        for (const TensorType* t : operands)
          if (t->dtype != dtype) return std::nullopt;
      break;
    }
    default: break;
  }
  bool wraps =
      scalar && c.op != Op::pow_Tensor_Scalar && c.op != Op::clamp && c.op != Op::clamp_min && c.op != Op::clamp_max;
  // Of powers of a number the result is made before the iterator sees it, row by row.
  auto strides = c.op == Op::pow_Scalar ? contiguous_strides(c.arena(), sizes)
                                        : iterator_strides(c.arena(), sizes, operands, wraps, c.context.decide);
  if (!strides || !device) return std::nullopt;
  return one(TensorType{dtype, device->device, std::move(sizes), std::move(*strides), c.arena().constant(0)});
}

}  // namespace braze::graph
