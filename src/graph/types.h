// Dtypes, devices and tensor types. Numbers of DType and MemoryFormat equal PyTorch's ScalarType and MemoryFormat
// (checked where trace/ converts), so that conversion is a cast.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/float8.h"
#include "symbolic/expr.h"

namespace braze {

enum class DType : int8_t {
  U8 = 0,
  I8 = 1,
  I16 = 2,
  I32 = 3,
  I64 = 4,
  F16 = 5,
  F32 = 6,
  F64 = 7,
  C32 = 8,
  C64 = 9,
  C128 = 10,
  Bool = 11,
  BF16 = 15,
  F8E5M2 = 23,
  F8E4M3 = 24,
  F8E5M2fnuz = 25,
  F8E4M3fnuz = 26,
  F8E8M0 = 44,
  Opaque = 127,
};
std::string_view name(DType);  // "f32", "bf16", "i64", "bool", ...
std::optional<DType> dtype_from_name(std::string_view);
int size_of(DType);  // bytes; 0 for Opaque
bool is_floating(DType);
double largest_finite(DType);  // of a floating dtype of two or more bytes; of others, of float64
const Float8* float8(DType);   // nullptr: not a float of a byte
bool is_integral(DType);       // without bool
bool is_complex(DType);
// PyTorch's lattice for two tensors of one category. Opaque: it has none, as of a float of a byte with anything else.
DType promote(DType a, DType b);
// What its numbers are computed in: floats of one or two bytes as F32, else it itself.
inline DType compute_dtype(DType d) { return d == DType::F16 || d == DType::BF16 || float8(d) ? DType::F32 : d; }
inline bool is_rounded_float(DType d) { return compute_dtype(d) != d; }  // where it is stored or cast to

enum class DeviceType : uint8_t { CPU, CUDA, Meta, Other };
struct Device {
  DeviceType type = DeviceType::CPU;
  int8_t index = -1;
  friend bool operator==(const Device&, const Device&) = default;
};

struct TensorType {
  DType dtype = DType::F32;
  Device device;
  std::vector<sym::Expr> sizes;    // elements
  std::vector<sym::Expr> strides;  // elements
  sym::Expr offset;                // elements from the start of the storage (0 for all but inputs and views)
  size_t dim() const { return sizes.size(); }
};

std::vector<sym::Expr> contiguous_strides(sym::ExprArena&, const std::vector<sym::Expr>& sizes);
bool is_contiguous(sym::ExprArena&, const TensorType&);  // provably row-major dense

}  // namespace braze
