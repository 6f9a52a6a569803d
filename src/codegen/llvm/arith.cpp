#include "codegen/llvm/arith.h"

#include <llvm/IR/PatternMatch.h>

#include <cmath>

#include "base/check.h"
#include "codegen/llvm/float8.h"
#include "codegen/llvm/math.h"

namespace braze::codegen::ir {
namespace {

using loop::LoopOp;
using loop::OpCode;

bool is_signed(DType t) { return t != DType::U8 && t != DType::Bool; }

Value* widen_bf16(VectorBuilder& b, Value* s) {
  Value* w = b.B.CreateZExt(s, VectorBuilder::like(s, b.i32()));
  return b.unbits(b.B.CreateShl(w, b.integer(w, 16)));
}

// What was widened, if `value` is that: it needs no rounding.
Value* narrow_again(Value* value) {
  using namespace llvm::PatternMatch;
  Value* s = nullptr;
  return match(value, m_BitCast(m_Shl(m_ZExt(m_Value(s)), m_SpecificInt(16)))) &&
                 s->getType()->getScalarType()->isIntegerTy(16)
             ? s
             : nullptr;
}

Value* non_zero(VectorBuilder& b, Value* d) {
  return b.B.CreateSelect(b.B.CreateICmpEQ(d, b.integer(d, 0)), b.integer(d, 1), d);
}

// Quotient and remainder that never trap: a zero divisor counts as 1, and dividing by -1 is negation.
struct Division {
  Value *q, *r;
};
Division divide(VectorBuilder& b, Value* a, Value* d, bool sign) {
  d = non_zero(b, d);
  if (!sign) {
    Value* q = b.B.CreateUDiv(a, d);
    return {q, b.B.CreateSub(a, b.B.CreateMul(q, d))};
  }
  Value* minus = b.B.CreateICmpEQ(d, b.integer(d, -1));
  Value* safe = b.B.CreateSelect(minus, b.integer(d, 1), d);
  Value* q = b.B.CreateSDiv(a, safe);
  q = b.B.CreateSelect(minus, b.B.CreateNeg(a), q);
  return {q, b.B.CreateSub(a, b.B.CreateMul(q, d))};
}
// The remainder has the other sign than the divisor: round the quotient down.
Value* needs_floor(VectorBuilder& b, Value* r, Value* d) {
  Value* nonzero = b.B.CreateICmpNE(r, b.integer(r, 0));
  return b.B.CreateAnd(nonzero, b.B.CreateICmpSLT(b.B.CreateXor(r, d), b.integer(r, 0)));
}

Value* float_floordiv(VectorBuilder& b, Value* x, Value* y) {
  Value* mod = b.frem(x, y);
  Value* zero = b.num(x, 0.0);
  Value* div = b.B.CreateFDiv(b.B.CreateFSub(x, mod), y);
  Value* opposite = b.B.CreateXor(b.B.CreateFCmpOLT(y, zero), b.B.CreateFCmpOLT(mod, zero));
  Value* fix = b.B.CreateAnd(b.B.CreateFCmpUNE(mod, zero), opposite);
  div = b.B.CreateSelect(fix, b.B.CreateFSub(div, b.num(x, 1.0)), div);
  Value* floor = b.B.CreateUnaryIntrinsic(llvm::Intrinsic::floor, div);
  Value* up = b.B.CreateFCmpOGT(b.B.CreateFSub(div, floor), b.num(x, 0.5));
  floor = b.B.CreateSelect(up, b.B.CreateFAdd(floor, b.num(x, 1.0)), floor);
  Value* plain = b.B.CreateFDiv(x, y);
  Value* r = b.B.CreateSelect(b.B.CreateFCmpUNE(div, zero), floor, b.copysign(zero, plain));
  return b.B.CreateSelect(b.B.CreateFCmpOEQ(y, zero), plain, r);
}

Value* float_remainder(VectorBuilder& b, Value* x, Value* y) {
  Value* mod = b.frem(x, y);
  Value* zero = b.num(x, 0.0);
  Value* opposite = b.B.CreateXor(b.B.CreateFCmpOLT(y, zero), b.B.CreateFCmpOLT(mod, zero));
  Value* fix = b.B.CreateAnd(b.B.CreateFCmpUNE(mod, zero), opposite);
  return b.B.CreateSelect(fix, b.B.CreateFAdd(mod, y), mod);
}

Value* compare(VectorBuilder& b, OpCode code, Value* x, Value* y, DType type) {
  using P = llvm::CmpInst::Predicate;
  if (x->getType()->isFPOrFPVectorTy()) {
    switch (code) {
      case OpCode::Eq: return b.B.CreateFCmpOEQ(x, y);
      case OpCode::Ne: return b.B.CreateFCmpUNE(x, y);
      case OpCode::Lt: return b.B.CreateFCmpOLT(x, y);
      case OpCode::Le: return b.B.CreateFCmpOLE(x, y);
      case OpCode::Gt: return b.B.CreateFCmpOGT(x, y);
      default: return b.B.CreateFCmpOGE(x, y);
    }
  }
  bool s = is_signed(type);
  P p = code == OpCode::Eq   ? P::ICMP_EQ
        : code == OpCode::Ne ? P::ICMP_NE
        : code == OpCode::Lt ? (s ? P::ICMP_SLT : P::ICMP_ULT)
        : code == OpCode::Le ? (s ? P::ICMP_SLE : P::ICMP_ULE)
        : code == OpCode::Gt ? (s ? P::ICMP_SGT : P::ICMP_UGT)
                             : (s ? P::ICMP_SGE : P::ICMP_UGE);
  return b.B.CreateICmp(p, x, y);
}

Value* sign_of(VectorBuilder& b, Value* x, DType type) {
  if (x->getType()->isFPOrFPVectorTy()) {
    // 0 for NaN and for both zeros, as PyTorch: (0 < x) - (x < 0).
    Value* zero = b.num(x, 0.0);
    Value* up = b.B.CreateSelect(b.B.CreateFCmpOGT(x, zero), b.num(x, 1.0), zero);
    return b.B.CreateSelect(b.B.CreateFCmpOLT(x, zero), b.num(x, -1.0), up);
  }
  Value* zero = b.integer(x, 0);
  Value* up = b.B.CreateZExt(b.B.CreateICmpNE(x, zero), x->getType());
  return is_signed(type) ? b.B.CreateSelect(b.B.CreateICmpSLT(x, zero), b.integer(x, -1), up) : up;
}

Value* shift(VectorBuilder& b, OpCode code, Value* x, Value* n, DType type) {
  unsigned width = x->getType()->getScalarSizeInBits();
  Value* outside = b.B.CreateICmpUGE(n, b.integer(n, width));
  Value* amount = b.B.CreateSelect(outside, b.integer(n, code == OpCode::Shr && is_signed(type) ? width - 1 : 0), n);
  if (code == OpCode::Shl) return b.B.CreateSelect(outside, b.integer(x, 0), b.B.CreateShl(x, amount));
  if (is_signed(type)) return b.B.CreateAShr(x, amount);
  return b.B.CreateSelect(outside, b.integer(x, 0), b.B.CreateLShr(x, amount));
}

Value* boolean_arith(VectorBuilder& b, OpCode code, Value* x, Value* y) {
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (code) {
    case OpCode::Add: case OpCode::Max: case OpCode::Or: return b.B.CreateOr(x, y);
    case OpCode::Mul: case OpCode::Min: case OpCode::And: return b.B.CreateAnd(x, y);
    case OpCode::Xor: case OpCode::Sub: return b.B.CreateXor(x, y);
    case OpCode::Not: return b.B.CreateNot(x);
    case OpCode::Abs: case OpCode::Sign: return x;
    default: BRAZE_CHECK(false, "no such arithmetic on bool");
  }
  // clang-format on
}

Value* integer_pow(VectorBuilder& b, Value* x, Value* y, DType type) {
  Type* wide = VectorBuilder::like(x, b.i64());
  auto widen = [&](Value* v) { return is_signed(type) ? b.B.CreateSExt(v, wide) : b.B.CreateZExt(v, wide); };
  return b.B.CreateTrunc(b.call_per_lane("braze_ipow", b.i64(), {widen(x), widen(y)}), x->getType());
}

Value* integer_arith(VectorBuilder& b, OpCode code, Value* x, Value* y, DType type) {
  bool s = is_signed(type);
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (code) {
    case OpCode::Add: return b.B.CreateAdd(x, y);
    case OpCode::Sub: return b.B.CreateSub(x, y);
    case OpCode::Mul: return b.B.CreateMul(x, y);
    case OpCode::Div: return divide(b, x, y, s).q;
    case OpCode::Mod: return divide(b, x, y, s).r;
    case OpCode::FloorDiv: {
      Division d = divide(b, x, y, s);
      if (!s) return d.q;
      return b.B.CreateSub(d.q, b.B.CreateZExt(needs_floor(b, d.r, y), x->getType()));
    }
    case OpCode::Remainder: {
      Division d = divide(b, x, y, s);
      if (!s) return d.r;
      return b.B.CreateSelect(needs_floor(b, d.r, y), b.B.CreateAdd(d.r, y), d.r);
    }
    case OpCode::Max: return emit_max(b, x, y, s, false);
    case OpCode::Min: return emit_max(b, x, y, s, true);
    case OpCode::Pow: return integer_pow(b, x, y, type);
    case OpCode::And: return b.B.CreateAnd(x, y);
    case OpCode::Or: return b.B.CreateOr(x, y);
    case OpCode::Xor: return b.B.CreateXor(x, y);
    case OpCode::Shl: case OpCode::Shr: return shift(b, code, x, y, type);
    case OpCode::Not: return b.B.CreateNot(x);
    case OpCode::Neg: return b.B.CreateNeg(x);
    case OpCode::Abs: return s ? b.B.CreateSelect(b.B.CreateICmpSLT(x, b.integer(x, 0)), b.B.CreateNeg(x), x) : x;
    case OpCode::Sign: return sign_of(b, x, type);
    case OpCode::Floor: case OpCode::Ceil: case OpCode::Trunc: case OpCode::Round: return x;
    default: BRAZE_CHECK(false, "no such arithmetic on integers");
  }
  // clang-format on
}

Value* float_arith(VectorBuilder& b, OpCode code, Value* x, Value* y) {
  namespace I = llvm::Intrinsic;
  if (is_math(code)) return emit_math(b, code, x, y);
  switch (code) {
    case OpCode::Add: return b.B.CreateFAdd(x, y);
    case OpCode::Sub: return b.B.CreateFSub(x, y);
    case OpCode::Mul: return b.B.CreateFMul(x, y);
    case OpCode::Div: return b.B.CreateFDiv(x, y);
    case OpCode::FloorDiv: return float_floordiv(b, x, y);
    case OpCode::Mod: return b.frem(x, y);
    case OpCode::Remainder: return float_remainder(b, x, y);
    case OpCode::Max: return emit_max(b, x, y, true, false);
    case OpCode::Min: return emit_max(b, x, y, true, true);
    case OpCode::Copysign: return b.copysign(x, y);
    case OpCode::Neg: return b.B.CreateFNeg(x);
    case OpCode::Abs: return b.fabs(x);
    case OpCode::Sign: return sign_of(b, x, DType::F32);
    case OpCode::Floor: return b.B.CreateUnaryIntrinsic(I::floor, x);
    case OpCode::Ceil: return b.B.CreateUnaryIntrinsic(I::ceil, x);
    case OpCode::Trunc: return b.B.CreateUnaryIntrinsic(I::trunc, x);
    case OpCode::Round: return b.round_even(x);
    case OpCode::Sqrt: return b.B.CreateUnaryIntrinsic(I::sqrt, x);
    case OpCode::Rsqrt: return b.B.CreateFDiv(b.num(x, 1.0), b.B.CreateUnaryIntrinsic(I::sqrt, x));
    case OpCode::Recip: return b.B.CreateFDiv(b.num(x, 1.0), x);
    default: BRAZE_CHECK(false, "no such arithmetic on floats");
  }
}

Value* bitcast(VectorBuilder& b, Value* v, DType from, DType to) {
  return from_storage(b, to, b.B.CreateBitCast(to_storage(b, from, v), VectorBuilder::like(v, storage_type(b, to))));
}

}  // namespace

Type* storage_type(VectorBuilder& b, DType dtype) {
  // clang-format off: a table, with as many rows of a kind as fit on a line
  switch (dtype) {
    case DType::Bool: case DType::U8: case DType::I8: return b.i8();
    case DType::F8E5M2: case DType::F8E4M3: case DType::F8E5M2fnuz: case DType::F8E4M3fnuz: case DType::F8E8M0: return b.i8();
    case DType::I16: case DType::BF16: return b.i16();
    case DType::F16: return b.B.getHalfTy();
    case DType::I32: return b.i32();
    case DType::I64: return b.i64();
    case DType::F32: return b.f32();
    case DType::F64: return b.f64();
    default: throw InternalError("the CPU code generator has no dtype " + std::string(name(dtype)));
  }
  // clang-format on
}

Type* compute_type(VectorBuilder& b, DType dtype) {
  switch (dtype) {
    case DType::Bool: return b.i1();
    case DType::F16:
    case DType::BF16: return b.f32();
    default: return storage_type(b, dtype);
  }
}

Value* from_storage(VectorBuilder& b, DType dtype, Value* stored) {
  switch (dtype) {
    case DType::Bool: return b.B.CreateICmpNE(stored, b.integer(stored, 0));
    case DType::F16: return b.B.CreateFPExt(stored, VectorBuilder::like(stored, b.f32()));
    case DType::BF16: return widen_bf16(b, stored);
    default: return stored;
  }
}

Value* to_storage(VectorBuilder& b, DType dtype, Value* value) {
  switch (dtype) {
    case DType::Bool: return b.B.CreateZExt(value, VectorBuilder::like(value, b.i8()));
    case DType::F16: return b.B.CreateFPTrunc(value, VectorBuilder::like(value, b.B.getHalfTy()));
    case DType::BF16:
      if (Value* s = narrow_again(value)) return s;
      return b.to_bf16(value);
    default: return value;
  }
}

Value* emit_cast(VectorBuilder& b, Value* v, DType from, DType to) {
  if (from == to) return v;
  if (const Float8* format = float8(from)) return emit_cast(b, widen_float8(b, *format, v), DType::F32, to);
  if (const Float8* format = float8(to)) return narrow_float8(b, *format, emit_cast(b, v, from, DType::F32));
  bool f = is_floating(from), t = is_floating(to);
  Type* type = VectorBuilder::like(v, compute_type(b, to));
  if (to == DType::Bool) return f ? b.B.CreateFCmpUNE(v, b.num(v, 0.0)) : b.B.CreateICmpNE(v, b.integer(v, 0));
  if (f && t) {
    Value* r = v;
    if (type != v->getType()) r = b.B.CreateFPCast(v, type);
    return to == DType::F16 || to == DType::BF16 ? from_storage(b, to, to_storage(b, to, r)) : r;
  }
  if (f) {
    // Narrow integers by way of i32, as the machine's conversion does. Freeze: what is out of range must be some
    // number.
    unsigned width = type->getScalarSizeInBits();
    Type* via = width < 32 ? VectorBuilder::like(v, b.i32()) : type;
    Value* i = b.B.CreateFreeze(b.B.CreateFPToSI(v, via));
    return via == type ? i : b.B.CreateTrunc(i, type);
  }
  if (t) {
    Value* r = is_signed(from) ? b.B.CreateSIToFP(v, type) : b.B.CreateUIToFP(v, type);
    bool exact = size_of(from) == 1;  // 256 is the first integer behind which a bfloat16 has gaps
    return !exact && (to == DType::F16 || to == DType::BF16) ? from_storage(b, to, to_storage(b, to, r)) : r;
  }
  return b.B.CreateIntCast(v, type, is_signed(from));
}

Value* emit_max(VectorBuilder& b, Value* a, Value* c, bool sign, bool minimum) {
  if (!a->getType()->isFPOrFPVectorTy()) {
    Value* less = sign ? b.B.CreateICmpSLT(a, c) : b.B.CreateICmpULT(a, c);
    return minimum ? b.B.CreateSelect(less, a, c) : b.B.CreateSelect(less, c, a);
  }
  if (Value* r = b.native_max(a, c, minimum)) return r;
  auto number = [](Value* v) -> llvm::ConstantFP* {
    auto* k = llvm::dyn_cast<llvm::Constant>(v);
    auto* s = llvm::dyn_cast_or_null<llvm::ConstantFP>(k && k->getType()->isVectorTy() ? k->getSplatValue() : k);
    return s && !s->isNaN() ? s : nullptr;
  };
  // A constant as the bound needs no test for NaN; equal operands differ in the sign of zero alone.
  if (auto* s = number(a); s && !s->isZero() && !number(c)) std::swap(a, c);
  Value* r = minimum ? b.at_most(c, a) : b.at_least(c, a);  // the first operand where either is NaN, and of equals
  return number(c) ? r : b.B.CreateSelect(b.is_nan(c), c, r);
}

Value* emit_arith(VectorBuilder& b, const LoopOp& op, const std::array<DType, 3>& types, std::array<Value*, 3> v) {
  auto as = [&](int i, DType t) { return emit_cast(b, v[i], types[i], t); };
  switch (op.code) {
    case OpCode::Cast: return emit_cast(b, v[0], types[0], op.dtype);
    case OpCode::Bitcast: return bitcast(b, v[0], types[0], op.dtype);
    case OpCode::Where: return b.B.CreateSelect(as(0, DType::Bool), as(1, op.dtype), as(2, op.dtype));
    case OpCode::Fma: return b.fma(as(0, op.dtype), as(1, op.dtype), as(2, op.dtype));
    case OpCode::Eq:
    case OpCode::Ne:
    case OpCode::Lt:
    case OpCode::Le:
    case OpCode::Gt:
    case OpCode::Ge: return compare(b, op.code, v[0], as(1, types[0]), types[0]);
    case OpCode::IsNan: return is_floating(types[0]) ? b.is_nan(v[0]) : b.integer(VectorBuilder::like(v[0], b.i1()), 0);
    case OpCode::IsInf:
      return is_floating(types[0]) ? b.B.CreateFCmpOEQ(b.fabs(v[0]), b.num(v[0], INFINITY))
                                   : b.integer(VectorBuilder::like(v[0], b.i1()), 0);
    default: break;
  }
  Value* x = as(0, op.dtype);
  Value* y = v[1] ? as(1, op.dtype) : nullptr;
  if (op.dtype == DType::Bool) return boolean_arith(b, op.code, x, y);
  return is_floating(op.dtype) ? float_arith(b, op.code, x, y) : integer_arith(b, op.code, x, y, op.dtype);
}

}  // namespace braze::codegen::ir
