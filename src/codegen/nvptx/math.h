// Elementary functions on the GPU, without libdevice. f32: polynomials and the hardware's exponential, within 2 ulp;
// rare ones in double. f64: within a few ulp. NaN, infinities, signed zeros and denormals as in IEEE.
#pragma once
#include "base/target.h"
#include "codegen/llvm/vector_builder.h"
#include "loop/loop.h"

namespace braze::codegen::nvptx {

using llvm::Type;
using llvm::Value;

// Emits the functions of the C library that the shared emitters ask for. Scalars only.
class DeviceBuilder final : public ir::VectorBuilder {
 public:
  DeviceBuilder(llvm::Module& module, const Target& target) : VectorBuilder(module), target(target) {}
  const Target& target;

  bool has_fma() const override { return true; }
  bool has_c_library() const override { return false; }
  Value* to_bf16(Value* x) override;
  // Two f32 rounded to f16 or bf16, as the halves of an i32; one instruction for both. nullptr: the GPU has none.
  Value* pack(DType dtype, Value* low, Value* high);
  Value* native_from_float8(const Float8& format, Value* bits) override;
  Value* native_to_float8(const Float8& format, Value* x) override;
  Value* native_max(Value* x, Value* y, bool minimum) override;
  Value* native_exp_below(Value* x) override;
  bool slow_underflow() const override { return false; }
  Value* frem(Value* x, Value* y) override;
  // Throws Unsupported for a function that is not there.
  Value* call_per_lane(const std::string& name, Type* element, llvm::ArrayRef<Value*> operands) override;
};

// One transcendental row of loop/opcodes.def on a scalar f32 or f64.
Value* emit_math(DeviceBuilder& b, loop::OpCode code, Value* x, Value* y);

}  // namespace braze::codegen::nvptx
