// PyTorch's scalar kinds and sizes <-> the graph's. Only for files of trace/ that see torch headers.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/SymInt.h>

#include <optional>

#include "graph/types.h"
#include "trace/lazy_bits.h"

namespace braze::trace {

// nullopt: a dtype that the compiler does not take (quantised, unsigned 16 to 64, floats of four bits, ...).
std::optional<DType> dtype_of(c10::ScalarType type);
inline c10::ScalarType scalar_type(DType dtype) { return static_cast<c10::ScalarType>(dtype); }

// nullopt: neither CPU, CUDA nor meta.
std::optional<Device> device_of(c10::Device device);
c10::Device torch_device(Device device);

// A size as an expression and back. A symbolic SymInt must be made by this arena (SizeNode); else InternalError.
sym::Expr expr_of(sym::ExprArena& arena, const c10::SymInt& size);

// The type of a strided tensor: its offset is that of its own storage. Throws Unsupported (UnsupportedTensor) for
// dtypes and devices that are not taken.
TensorType type_of(sym::ExprArena& arena, const at::Tensor& tensor);

inline LazyBits lazy_bits(const at::Tensor& t) { return {t.is_conj(), t.is_neg()}; }
// Of a tensor that nobody else has: others on its memory keep theirs.
inline void set_lazy_bits(const at::Tensor& t, LazyBits bits) {
  if (lazy_bits(t) == bits) return;
  t._set_conj(bits.conj);
  t._set_neg(bits.neg);
}

}  // namespace braze::trace
