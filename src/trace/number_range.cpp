#include "trace/number_range.h"

#include <c10/core/Scalar.h>

#include <exception>
#include <initializer_list>
#include <optional>

#include "base/check.h"

namespace braze::trace {
namespace {

using graph::Op;

// Positions of the arguments.
std::initializer_list<size_t> converted_numbers(Op op) {
  static constexpr std::initializer_list<size_t> kFirst = {1}, kSecond = {2}, kThird = {3}, kTwo = {1, 2};
  switch (op) {
    case Op::fill_Scalar:
    case Op::full:
    case Op::full_like:
    case Op::clamp_min:
    case Op::clamp_max: return kFirst;
    case Op::new_full:
    case Op::masked_fill_Scalar:
    case Op::constant_pad_nd: return kSecond;
    case Op::scatter_value:
    case Op::index_fill_int_Scalar: return kThird;
    case Op::clamp:
    case Op::hardtanh:
    case Op::threshold: return kTwo;
    default: return {};
  }
}

// Throws where it is out of range.
void convert(const c10::Scalar& number, DType dtype) {
  switch (dtype) {
    case DType::U8: number.to<uint8_t>(); return;
    case DType::I8: number.to<int8_t>(); return;
    case DType::I16: number.to<int16_t>(); return;
    case DType::I32: number.to<int32_t>(); return;
    case DType::I64: number.to<int64_t>(); return;
    case DType::F16: number.to<c10::Half>(); return;
    case DType::BF16: number.to<c10::BFloat16>(); return;
    case DType::F32: number.to<float>(); return;
    case DType::F8E5M2: number.to<c10::Float8_e5m2>(); return;
    case DType::F8E4M3: number.to<c10::Float8_e4m3fn>(); return;
    default: return;
  }
}

// Differences of booleans, and factors that are of another kind than the result.
void refuse_boolean(Op op, const std::vector<graph::Arg>& args, DType result) {
  auto is_boolean = [&](size_t i) { return i < args.size() && std::holds_alternative<bool>(args[i]); };
  bool refused = false;
  switch (op) {
    case Op::sub_Tensor:
    case Op::sub_Scalar:
    case Op::rsub_Tensor:
    case Op::rsub_Scalar: refused = is_boolean(1); [[fallthrough]];
    case Op::add_Tensor:
    case Op::add_Scalar:
      refused |= is_boolean(2) && result != DType::Bool;
      refused |= args.size() > 2 && std::holds_alternative<double>(args[2]) && is_integral(result);
      break;
    default: break;
  }
  if (refused) throw Unsupported(Reason::RaisedException, "eager PyTorch refuses these arguments");
}

}  // namespace

void refuse_out_of_range(const sym::ExprArena& arena, Op op, const std::vector<graph::Arg>& args, DType result) {
  refuse_boolean(op, args, result);
  const bool bounds = op == Op::clamp || op == Op::clamp_min || op == Op::clamp_max || op == Op::hardtanh;
  if (bounds && !is_floating(result)) return;  // trace/pytorch/clamp.cpp
  for (size_t i : converted_numbers(op)) {
    if (i >= args.size()) return;
    if (auto* number = std::get_if<double>(&args[i])) convert(*number, result);
    auto* integer = std::get_if<sym::Expr>(&args[i]);
    if (auto known = integer ? arena.as_const(*integer) : std::nullopt) convert(*known, result);
  }
}

std::string overflow_error(DType dtype) {
  try {
    convert(1e300, dtype);
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace braze::trace
