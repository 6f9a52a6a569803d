// One loop op on one value of each operand: the casts, arithmetic, comparisons and selections of loop/opcodes.def.
#pragma once
#include "codegen/llvm/vector_builder.h"
#include "loop/loop.h"

namespace braze::codegen::ir {

// In memory and in registers: bool is i8 and i1, f16 and bf16 are 16 bits and float, floats of a byte that
// byte in both.
Type* storage_type(VectorBuilder& b, DType dtype);
Type* compute_type(VectorBuilder& b, DType dtype);
Value* from_storage(VectorBuilder& b, DType dtype, Value* stored);
Value* to_storage(VectorBuilder& b, DType dtype, Value* value);

Value* emit_cast(VectorBuilder& b, Value* v, DType from, DType to);
// `op` is any op without memory, index or reduction; operands are of one shape, `types` their dtypes.
Value* emit_arith(VectorBuilder& b, const loop::LoopOp& op, const std::array<DType, 3>& types,
                  std::array<Value*, 3> operands);

// NaN-propagating maximum and minimum on floats; plain on integers.
Value* emit_max(VectorBuilder& b, Value* a, Value* c, bool is_signed, bool minimum);

}  // namespace braze::codegen::ir
