#include "graph/op.h"

#include <iterator>
#include <unordered_map>

namespace braze::graph {
namespace {

using enum ResultDType;
constexpr ResultRule promote(uint8_t n) { return {TypeFamily::Pointwise, Promote, n}; }
constexpr ResultRule floating(uint8_t n) { return {TypeFamily::Pointwise, Float, n}; }
constexpr ResultRule boolean(uint8_t n) { return {TypeFamily::Pointwise, Bool, n}; }
constexpr ResultRule first(uint8_t n) { return {TypeFamily::Pointwise, First, n}; }
constexpr ResultRule own{TypeFamily::Pointwise};
constexpr ResultRule reduction(ResultDType dtype, uint8_t dims = 0, uint8_t keepdim = 0) {
  return {TypeFamily::Reduction, dtype, 1, false, dims, keepdim};
}
constexpr ResultRule scan(ResultDType dtype) { return {TypeFamily::Scan, dtype, 1, false, 1}; }
constexpr ResultRule view{TypeFamily::View};
constexpr ResultRule index{TypeFamily::Index};
constexpr ResultRule factory{TypeFamily::Factory};
constexpr ResultRule matmul{TypeFamily::Matmul};
constexpr ResultRule conv{TypeFamily::Conv};
constexpr ResultRule attention{TypeFamily::Attention};
constexpr ResultRule norm{TypeFamily::Norm};
constexpr ResultRule untyped{};

constexpr OpRow kRows[] = {
#define BRAZE_OP(name, aten, cls, result, accepts, cost, raises, traits) \
  {aten, OpClass::cls, result, Accepts::accepts, Cost::cost, Raises::raises, static_cast<uint8_t>(traits)},
#include "graph/ops.def"
#undef BRAZE_OP
    {"extern", OpClass::Extern, untyped, Accepts::AnyDType, Cost::Dear, Raises::Values, kEffect}};
constexpr size_t kNamed = std::size(kRows) - 1;
static_assert(kNamed == static_cast<size_t>(Op::Extern));

}  // namespace

const OpRow& op_row(Op op) { return kRows[static_cast<size_t>(op)]; }

Op op_from_name(std::string_view aten_name) {
  static const auto* names = [] {
    auto* m = new std::unordered_map<std::string_view, Op>;
    for (size_t i = 0; i < kNamed; ++i) m->emplace(kRows[i].name, static_cast<Op>(i));
    return m;
  }();
  auto it = names->find(aten_name);
  return it == names->end() ? Op::Extern : it->second;
}

bool takes_float8(Op op) {
  if (op_class(op) == OpClass::View) return true;
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (op) {
    case Op::_to_copy: case Op::copy: case Op::clone: case Op::contiguous: return true;
    case Op::where_self: case Op::where_ScalarOther: case Op::where_ScalarSelf: return true;
    case Op::eq_Tensor: case Op::eq_Scalar: case Op::ne_Tensor: case Op::ne_Scalar: case Op::isnan: return true;
    case Op::cat: case Op::stack: case Op::repeat: return true;
    case Op::index_Tensor: case Op::_unsafe_index_Tensor: case Op::index_select: case Op::embedding: return true;
    case Op::slice_scatter: case Op::select_scatter: return true;
    case Op::empty_memory_format: case Op::empty_like: case Op::empty_strided: case Op::new_empty: case Op::new_empty_strided: return true;
    default: return false;
  }
  // clang-format on
}

bool accepts(Op op, DType dtype) {
  switch (op_row(op).accepts) {
    case Accepts::AnyDType: return true;
    case Accepts::NoBool:
    case Accepts::NoBoolOperand: return dtype != DType::Bool;
    case Accepts::Floats: return is_floating(dtype);
    case Accepts::Integers: return is_integral(dtype);
    case Accepts::IntegersOrBool: return is_integral(dtype) || dtype == DType::Bool;
  }
  return false;
}

}  // namespace braze::graph
