#include "codegen/llvm/combine.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "codegen/llvm/math.h"

namespace braze::codegen::ir {

using loop::ReduceKind;

Value* reduce_identity(VectorBuilder& b, ReduceKind kind, DType operand, int part, Type* type) {
  Type* e = type->getScalarType();
  auto extreme = [&](bool lowest) -> Value* {
    if (e->isFloatingPointTy()) return b.num(type, lowest ? -INFINITY : INFINITY);
    unsigned w = e->getIntegerBitWidth();
    bool sign = operand != DType::U8 && operand != DType::Bool;
    llvm::APInt v = sign ? (lowest ? llvm::APInt::getSignedMinValue(w) : llvm::APInt::getSignedMaxValue(w))
                         : (lowest ? llvm::APInt::getMinValue(w) : llvm::APInt::getMaxValue(w));
    return llvm::ConstantInt::get(type, v);
  };
  // An index that no element has: any other is first.
  if (loop::is_index(kind) && part)
    return llvm::ConstantInt::get(type, llvm::APInt::getSignedMaxValue(e->getIntegerBitWidth()));
  if (loop::is_exponent(kind) && part) return llvm::Constant::getNullValue(type);
  switch (loop::reduce_row(kind).start) {
    case loop::ReduceStart::Zero: return llvm::Constant::getNullValue(type);
    case loop::ReduceStart::One: return e->isFloatingPointTy() ? b.num(type, 1.0) : b.integer(type, 1);
    case loop::ReduceStart::Lowest: return extreme(true);
    case loop::ReduceStart::Highest: return extreme(false);
  }
  BRAZE_CHECK(false, "no such reduction");
}

void reduce_combine(VectorBuilder& b, ReduceKind kind, DType operand, Value** into, Value* const* from, bool later) {
  bool sign = operand != DType::U8 && operand != DType::Bool;
  Value *x = into[0], *y = from[0];
  bool fp = x->getType()->isFPOrFPVectorTy();
  bool boolean = x->getType()->isIntOrIntVectorTy(1);
  switch (kind) {
    case ReduceKind::Sum:
      into[0] = fp ? b.B.CreateFAdd(x, y) : boolean ? b.B.CreateOr(x, y) : b.B.CreateAdd(x, y);
      return;
    case ReduceKind::Prod:
      into[0] = fp ? b.B.CreateFMul(x, y) : boolean ? b.B.CreateAnd(x, y) : b.B.CreateMul(x, y);
      return;
    case ReduceKind::Any: into[0] = b.B.CreateOr(x, y); return;
    case ReduceKind::All: into[0] = b.B.CreateAnd(x, y); return;
    case ReduceKind::Max: into[0] = emit_max(b, x, y, sign, false); return;
    case ReduceKind::Min: into[0] = emit_max(b, x, y, sign, true); return;
    case ReduceKind::LogAdd: {
      // The distance is NaN where both are infinite, or one is NaN: then the larger is the sum.
      Value *top = emit_max(b, x, y, true, false), *low = emit_max(b, x, y, true, true);
      Value* below = b.B.CreateFSub(low, top);
      Value* more = emit_math(b, loop::OpCode::Log1p, emit_math(b, loop::OpCode::Exp, below, nullptr), nullptr);
      into[0] = b.B.CreateSelect(b.is_nan(below), top, b.B.CreateFAdd(top, more));
      return;
    }
    case ReduceKind::ArgMax:
    case ReduceKind::ArgMin: {
      bool max = kind == ReduceKind::ArgMax;
      Value *better, *equal;
      if (later) {
        // Better or NaN, unless the earlier one is NaN.
        if (fp)
          better = b.B.CreateAnd(max ? b.B.CreateFCmpUGT(y, x) : b.B.CreateFCmpULT(y, x), b.B.CreateFCmpORD(x, x));
        else
          better = max ? (sign ? b.B.CreateICmpSGT(y, x) : b.B.CreateICmpUGT(y, x))
                       : (sign ? b.B.CreateICmpSLT(y, x) : b.B.CreateICmpULT(y, x));
        into[0] = b.B.CreateSelect(better, y, x);
        into[1] = b.B.CreateSelect(better, from[1], into[1]);
        return;
      }
      if (fp) {
        Value *nx = b.is_nan(x), *ny = b.is_nan(y);
        better = max ? b.B.CreateFCmpOGT(y, x) : b.B.CreateFCmpOLT(y, x);
        better = b.B.CreateOr(better, b.B.CreateAnd(ny, b.B.CreateNot(nx)));
        equal = b.B.CreateOr(b.B.CreateFCmpOEQ(x, y), b.B.CreateAnd(nx, ny));
      } else {
        better = max ? (sign ? b.B.CreateICmpSGT(y, x) : b.B.CreateICmpUGT(y, x))
                     : (sign ? b.B.CreateICmpSLT(y, x) : b.B.CreateICmpULT(y, x));
        equal = b.B.CreateICmpEQ(x, y);
      }
      better = b.B.CreateOr(better, b.B.CreateAnd(equal, b.B.CreateICmpSLT(from[1], into[1])));
      into[0] = b.B.CreateSelect(better, y, x);
      into[1] = b.B.CreateSelect(better, from[1], into[1]);
      return;
    }
    case ReduceKind::WelfordMean:
    case ReduceKind::WelfordM2: {  // parts: mean, sum of squared deviations, count
      Value* n = b.B.CreateFAdd(into[2], from[2]);
      Value* delta = b.B.CreateFSub(y, x);
      Value* some = b.B.CreateFCmpOGT(n, b.num(n, 0.0));
      Value* share = b.B.CreateFDiv(from[2], b.B.CreateSelect(some, n, b.num(n, 1.0)));
      into[0] = b.fma(delta, share, x);
      // The factor that may be 0 first: the square of a large difference may be infinite.
      Value* cross = b.B.CreateFMul(delta, b.B.CreateFMul(delta, b.B.CreateFMul(into[2], share)));
      into[1] = b.B.CreateFAdd(into[1], b.B.CreateFAdd(from[1], cross));
      into[2] = n;
      return;
    }
    case ReduceKind::ExpSum: {  // parts: maximum, sum
      Value *top = emit_max(b, x, y, true, false), *base = exponent_base(b, top);
      into[0] = top;
      into[1] = b.fma(into[1], exponential(b, x, base), b.B.CreateFMul(from[1], exponential(b, y, base)));
      return;
    }
  }
}

Value* exponent_base(VectorBuilder& b, Value* top) {
  return b.B.CreateSelect(b.B.CreateFCmpOEQ(top, b.num(top, -INFINITY)), b.num(top, 0.0), top);
}

Value* exponential(VectorBuilder& b, Value* x, Value* base) {
  Value* below = b.B.CreateFSub(x, base);
  if (Value* e = b.native_exp_below(below)) return e;
  return emit_math(b, loop::OpCode::Exp, below, nullptr);
}

Value* exponent_sum(VectorBuilder& b, Value* top, Value* sum) {
  return b.B.CreateSelect(b.B.CreateFCmpOEQ(top, b.num(top, -INFINITY)), b.num(sum, NAN), sum);
}

void align_welford(VectorBuilder& b, Value** into, Value** from) {
  Value* some = b.B.CreateFCmpOGT(into[2], b.num(into[2], 0.0));
  into[3] = b.B.CreateSelect(some, into[3], from[3]);
  from[0] = b.B.CreateFAdd(from[0], b.B.CreateFSub(from[3], into[3]));
  into[0] = b.B.CreateSelect(some, into[0], from[0]);
}

}  // namespace braze::codegen::ir
