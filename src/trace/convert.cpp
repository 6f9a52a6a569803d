#include "trace/convert.h"

#include <c10/core/MemoryFormat.h>

#include "base/check.h"
#include "trace/global_state.h"
#include "trace/symnode.h"

namespace braze::trace {
namespace {

#define BRAZE_SAME(ours, theirs) \
  static_assert(static_cast<int>(DType::ours) == static_cast<int>(c10::ScalarType::theirs))
BRAZE_SAME(U8, Byte);
BRAZE_SAME(I8, Char);
BRAZE_SAME(I16, Short);
BRAZE_SAME(I32, Int);
BRAZE_SAME(I64, Long);
BRAZE_SAME(F16, Half);
BRAZE_SAME(F32, Float);
BRAZE_SAME(F64, Double);
BRAZE_SAME(C32, ComplexHalf);
BRAZE_SAME(C64, ComplexFloat);
BRAZE_SAME(C128, ComplexDouble);
BRAZE_SAME(Bool, Bool);
BRAZE_SAME(BF16, BFloat16);
BRAZE_SAME(F8E5M2, Float8_e5m2);
BRAZE_SAME(F8E4M3, Float8_e4m3fn);
BRAZE_SAME(F8E5M2fnuz, Float8_e5m2fnuz);
BRAZE_SAME(F8E4M3fnuz, Float8_e4m3fnuz);
BRAZE_SAME(F8E8M0, Float8_e8m0fnu);
#undef BRAZE_SAME
static_assert(static_cast<int>(c10::MemoryFormat::Contiguous) == 0);
static_assert(static_cast<int>(c10::MemoryFormat::Preserve) == 1);
static_assert(static_cast<int>(c10::MemoryFormat::ChannelsLast) == 2);
static_assert(static_cast<int>(c10::MemoryFormat::ChannelsLast3d) == 3);

}  // namespace

std::optional<DType> dtype_of(c10::ScalarType type) {
  auto number = static_cast<int>(type);
  if ((number >= 0 && number <= static_cast<int>(DType::Bool)) || type == c10::ScalarType::BFloat16)
    return static_cast<DType>(number);
  auto dtype = static_cast<DType>(number);
  return float8(dtype) ? std::optional(dtype) : std::nullopt;
}

std::optional<Device> device_of(c10::Device device) {
  switch (device.type()) {
    case c10::DeviceType::CPU: return Device{DeviceType::CPU, device.index()};
    case c10::DeviceType::CUDA:  // results on "cuda" say which device that is
      return Device{DeviceType::CUDA, static_cast<int8_t>(device.has_index() ? device.index() : current_gpu())};
    case c10::DeviceType::Meta: return Device{DeviceType::Meta, device.index()};
    default: return std::nullopt;
  }
}

c10::Device torch_device(Device device) {
  switch (device.type) {
    case DeviceType::CPU: return c10::Device(c10::kCPU, device.index);
    case DeviceType::CUDA: return c10::Device(c10::kCUDA, device.index);
    case DeviceType::Meta: return c10::Device(c10::kMeta, device.index);
    case DeviceType::Other: break;
  }
  throw InternalError("a tensor type with a device that has no counterpart in PyTorch");
}

sym::Expr expr_of(sym::ExprArena& arena, const c10::SymInt& size) {
  if (auto known = size.maybe_as_int()) return arena.constant(*known);
  auto* node = dynamic_cast<SizeNode*>(size.toSymNodeImplUnowned());
  BRAZE_CHECK(node && &node->arena() == &arena, "a symbolic size of another capture or compiler");
  return node->expr();
}

TensorType type_of(sym::ExprArena& arena, const at::Tensor& tensor) {
  TensorType type;
  auto dtype = dtype_of(tensor.scalar_type());
  if (!dtype) throw Unsupported(Reason::UnsupportedTensor, std::string("dtype ") + c10::toString(tensor.scalar_type()));
  auto device = device_of(tensor.device());
  if (!device) throw Unsupported(Reason::UnsupportedTensor, "device " + tensor.device().str());
  type.dtype = *dtype;
  type.device = *device;
  auto sizes = tensor.sym_sizes(), strides = tensor.sym_strides();
  type.sizes.reserve(sizes.size());
  type.strides.reserve(sizes.size());
  for (const auto& s : sizes) type.sizes.push_back(expr_of(arena, s));
  for (const auto& s : strides) type.strides.push_back(expr_of(arena, s));
  type.offset = expr_of(arena, tensor.sym_storage_offset());
  return type;
}

}  // namespace braze::trace
