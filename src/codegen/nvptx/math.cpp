#include "codegen/nvptx/math.h"

#include <cmath>

#include "base/check.h"
#include "codegen/llvm/math.h"
#include "codegen/llvm/math64.h"
#include "codegen/nvptx/loops.h"

namespace braze::codegen::nvptx {
namespace {

using loop::OpCode;

// The hardware's reciprocal, within 1 ulp, for denominators of our own (not for a division of the user's).
Value* reciprocal(DeviceBuilder& b, Value* x) {
  auto* type = llvm::FunctionType::get(b.f32(), {b.f32()}, false);
  return b.B.CreateCall(llvm::InlineAsm::get(type, "rcp.approx.f32 $0, $1;", "=f,f", false), {x});
}

// 2^(x log2(e)) by the hardware's power of two; what the product's rounding lost is put back by one more
// multiplication.
Value* exp(DeviceBuilder& b, Value* x) {
  Value* product = b.B.CreateFMul(x, b.num(x, 1.44269502162933349609375));
  Value* lost = b.fma(x, b.num(x, 1.44269502162933349609375), b.B.CreateFNeg(product));
  lost = b.fma(x, b.num(x, 1.925963033500011079e-08), lost);
  Value* power = b.B.CreateIntrinsic(llvm::Intrinsic::nvvm_ex2_approx_f, {}, {product});
  Value* r = b.fma(power, b.B.CreateFMul(lost, b.num(x, 0.693147182464599609375)), power);
  r = b.B.CreateSelect(b.B.CreateFCmpOGT(x, b.num(x, 88.72283935546875)), b.num(x, INFINITY), r);
  return b.B.CreateSelect(b.B.CreateFCmpOLT(x, b.num(x, -104.0)), b.num(x, 0.0), r);
}

Value* sigmoid(DeviceBuilder& b, Value* x) {
  return reciprocal(b, b.B.CreateFAdd(exp(b, b.B.CreateFNeg(x)), b.num(x, 1.0)));
}

// What rounding takes from the exponent's product is less than half a unit of the result, as the power counts
// against 1.
Value* tanh(DeviceBuilder& b, Value* x) {
  Value* t = b.fabs(x);
  Value* s = b.B.CreateFMul(x, x);
  Value* p = b.horner(s, {1.57394409e-2, -5.23025580e-2, 1.33152470e-1, -3.33327681e-1});
  Value* small = b.fma(b.B.CreateFMul(p, s), x, x);
  Value* power =
      b.B.CreateIntrinsic(llvm::Intrinsic::nvvm_ex2_approx_ftz_f, {}, {b.B.CreateFMul(t, b.num(x, 2.88539008177793))});
  Value* q = reciprocal(b, b.B.CreateFAdd(power, b.num(x, 1.0)));
  Value* large = b.fma(b.num(x, -2.0), q, b.num(x, 1.0));
  return b.copysign(b.B.CreateSelect(b.B.CreateFCmpOGT(t, b.num(x, 0.599609375)), large, small), x);
}

// log(1 + f) + e ln(2) for f in [1 / sqrt(2) - 1, sqrt(2) - 1].
Value* log_of_parts(DeviceBuilder& b, Value* f, Value* e) {
  Value* z = b.B.CreateFMul(f, f);
  Value* p = b.two_chains(f, z,
                          {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                           -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1});
  Value* y = b.fma(z, b.num(f, -0.5), b.B.CreateFMul(b.B.CreateFMul(f, z), p));
  return b.fma(e, b.num(f, 0.6931471805599453), b.B.CreateFAdd(f, y));
}

// The bits of 2^e with x 2^-e in [1 / sqrt(2), sqrt(2)], less those of 1.
Value* exponent_bits(DeviceBuilder& b, Value* x) {
  Value* i = b.bits(x);
  return b.B.CreateAnd(b.B.CreateSub(i, b.integer(i, 0x3f3504f3)), b.integer(i, 0xff800000));
}

// Where `ordinary` does not hold, what the hardware gives for 0, negative numbers, infinity and NaN.
Value* or_logarithm(DeviceBuilder& b, Value* ordinary, Value* r, Value* x) {
  return b.B.CreateSelect(ordinary, r, b.B.CreateIntrinsic(llvm::Intrinsic::nvvm_lg2_approx_f, {}, {x}));
}

Value* log(DeviceBuilder& b, Value* x) {
  Value *tiny = b.B.CreateFCmpOLT(x, b.num(x, 1.17549435e-38)), *zero = b.num(x, 0.0), *ulp = b.num(x, 0x1p-23);
  Value* scaled = b.B.CreateSelect(tiny, b.B.CreateFMul(x, b.num(x, 8388608.0)), x);
  Value* e = exponent_bits(b, scaled);
  Value* f = b.B.CreateFSub(b.unbits(b.B.CreateSub(b.bits(scaled), e)), b.num(x, 1.0));
  e = b.fma(b.B.CreateSIToFP(e, x->getType()), ulp, b.B.CreateSelect(tiny, b.num(x, -23.0), zero));
  Value* ordinary = b.B.CreateAnd(b.B.CreateFCmpOGT(x, zero), b.B.CreateFCmpOLT(x, b.num(x, INFINITY)));
  return or_logarithm(b, ordinary, log_of_parts(b, f, e), x);
}

// The argument is scaled by the exponent of 1 + x, so that no bit of it is lost (N. Juffa's way).
Value* log1p(DeviceBuilder& b, Value* x) {
  Value *one = b.num(x, 1.0), *above = b.B.CreateFAdd(x, one);
  Value* e = exponent_bits(b, above);
  Value* scale = b.unbits(b.B.CreateSub(b.integer(e, 0x40800000), e));  // 4 2^-e, which is no denormal
  Value* f = b.B.CreateFAdd(b.unbits(b.B.CreateSub(b.bits(x), e)), b.fma(scale, b.num(x, 0.25), b.num(x, -1.0)));
  Value* r = log_of_parts(b, f, b.B.CreateFMul(b.B.CreateSIToFP(e, x->getType()), b.num(x, 0x1p-23)));
  Value* ordinary = b.B.CreateAnd(b.B.CreateFCmpOGT(x, b.num(x, -1.0)), b.B.CreateFCmpOLT(x, b.num(x, INFINITY)));
  return or_logarithm(b, ordinary, b.copysign(r, x), above);
}

Value* rsqrt(DeviceBuilder& b, Value* x) { return b.B.CreateIntrinsic(llvm::Intrinsic::nvvm_rsqrt_approx_f, {}, {x}); }

// The angle of the smaller by the larger, turned into its octant.
Value* atan2(DeviceBuilder& b, Value* y, Value* x) {
  Value *v = b.fabs(y), *u = b.fabs(x), *zero = b.num(x, 0.0), *infinity = b.num(x, INFINITY);
  Value* steep = b.B.CreateFCmpOGT(v, u);
  Value *n = b.B.CreateSelect(steep, u, v), *d = b.B.CreateSelect(steep, v, u);
  // A divisor whose reciprocal is out of range is scaled with the dividend.
  Value* factor = b.B.CreateSelect(b.B.CreateFCmpOLT(d, b.num(x, 0x1p-100)), b.num(x, 0x1p64), b.num(x, 1.0));
  factor = b.B.CreateSelect(b.B.CreateFCmpOGT(d, b.num(x, 0x1p100)), b.num(x, 0x1p-64), factor);
  Value *dividend = b.B.CreateFMul(n, factor), *divisor = b.B.CreateFMul(d, factor);
  Value *r = reciprocal(b, divisor), *q = b.B.CreateFMul(dividend, r);
  q = b.fma(b.fma(b.B.CreateFNeg(q), divisor, dividend), r, q);
  q = b.B.CreateSelect(b.B.CreateFCmpOEQ(d, zero), zero, q);
  q = b.B.CreateSelect(b.B.CreateFCmpOEQ(d, infinity), b.B.CreateSelect(b.B.CreateFCmpOEQ(n, d), b.num(x, 1.0), zero),
                       q);
  Value* s = b.B.CreateFMul(q, q);
  Value* p = b.horner(s, {-2.42356351e-3, 1.36559233e-2, -3.61159071e-2, 6.27121404e-2, -8.66695568e-2, 1.10363966e-1,
                          -1.42789081e-1, 1.99997559e-1, -3.33333313e-1});
  Value* angle = b.fma(b.B.CreateFMul(p, s), q, q);
  angle = b.B.CreateSelect(steep, b.B.CreateFSub(b.num(x, M_PI_2), angle), angle);
  Value* left = b.B.CreateICmpSLT(b.bits(x), b.integer(b.bits(x), 0));
  angle = b.B.CreateSelect(left, b.B.CreateFSub(b.num(x, M_PI), angle), angle);
  return b.B.CreateSelect(b.B.CreateFCmpUNO(x, y), b.B.CreateFAdd(x, y), b.copysign(angle, y));
}

Value* erf(DeviceBuilder& b, Value* x) {
  Value* t = b.fabs(x);
  Value* s = b.B.CreateFMul(x, x);
  Value* r = b.fma(b.num(x, -1.72853470e-5), t, b.num(x, 3.83197126e-4));
  r = b.fma(r, s, b.fma(b.num(x, -3.88396438e-3), t, b.num(x, 2.42546219e-2)));
  for (double c : {-1.06777877e-1, -6.34846687e-1, -1.28717512e-1}) r = b.fma(r, t, b.num(x, c));
  r = b.fma(r, t, b.B.CreateFNeg(t));
  Value* large = b.copysign(b.B.CreateFSub(b.num(x, 1.0), exp(b, r)), x);
  Value* p = b.horner(s, {-5.96761703e-4, 4.99119423e-3, -2.67681349e-2, 1.12819925e-1, -3.76125336e-1, 1.28379166e-1});
  Value* small = b.fma(p, x, x);
  return b.B.CreateSelect(b.B.CreateFCmpOGT(t, b.num(x, 0.927734375)), large, small);
}

}  // namespace

Value* DeviceBuilder::to_bf16(Value* x) {
  if (!target.has_bf16()) return VectorBuilder::to_bf16(x);
  return B.CreateBitCast(B.CreateFPTrunc(x, B.getBFloatTy()), i16());
}

Value* DeviceBuilder::pack(DType dtype, Value* low, Value* high) {
  if (!target.has_bf16()) return nullptr;
  auto id = dtype == DType::BF16 ? llvm::Intrinsic::nvvm_ff2bf16x2_rn : llvm::Intrinsic::nvvm_ff2f16x2_rn;
  return B.CreateBitCast(B.CreateIntrinsic(id, {}, {high, low}), i32());
}

// The hardware's two layouts: those without a sign of NaN's or zero's own.
static const char* suffix_of(const Float8& f) {
  return f == kFloat8E4M3 ? "e4m3x2" : f == kFloat8E5M2 ? "e5m2x2" : nullptr;
}

Value* DeviceBuilder::native_from_float8(const Float8& format, Value* bits) {
  const char* suffix = suffix_of(format);
  if (!target.has_float8() || !suffix) return nullptr;
  auto* type = llvm::FunctionType::get(i32(), {i16()}, false);
  auto* convert = llvm::InlineAsm::get(type, std::string("cvt.rn.f16x2.") + suffix + " $0, $1;", "=r,h", false);
  Value* both = B.CreateCall(convert, {B.CreateZExt(bits, i16())});
  return B.CreateFPExt(B.CreateBitCast(B.CreateTrunc(both, i16()), B.getHalfTy()), f32());
}

// The instruction saturates: what it should have made infinity is made so.
Value* DeviceBuilder::native_to_float8(const Float8& format, Value* x) {
  const char* suffix = suffix_of(format);
  if (!target.has_float8() || !suffix) return nullptr;
  auto* type = llvm::FunctionType::get(i16(), {f32(), f32()}, false);
  auto* convert =
      llvm::InlineAsm::get(type, std::string("cvt.rn.satfinite.") + suffix + ".f32 $0, $1, $2;", "=h,f,f", false);
  Value* rounded = B.CreateTrunc(B.CreateCall(convert, {num(x, 0.0), x}), i8());
  if (format.kind != Float8::Kind::Ieee) return rounded;
  Value* infinity = B.CreateOr(B.CreateAnd(rounded, integer(rounded, 0x80)), integer(rounded, 0x7c));
  Value* limit = unbits(integer(i32(), format.limit()));
  // Numbers that round up to the limit, too: half way between it and the greatest number is a tie, which goes there.
  Value* half_way = B.CreateFMul(limit, num(x, 0.9375));
  return B.CreateSelect(B.CreateFCmpOGE(fabs(x), half_way), infinity, rounded);
}

Value* DeviceBuilder::native_max(Value* x, Value* y, bool minimum) {
  if (!target.has_bf16() || !x->getType()->isFloatTy()) return nullptr;
  return B.CreateBinaryIntrinsic(minimum ? llvm::Intrinsic::minimum : llvm::Intrinsic::maximum, x, y);
}

// As exp above, without what is far from 1: -inf is seen as a number whose power is 0, too.
Value* DeviceBuilder::native_exp_below(Value* x) {
  if (!x->getType()->isFloatTy()) return nullptr;
  Value *lowest = num(x, -110.0), *scale = num(x, 1.44269502162933349609375);
  x = B.CreateSelect(B.CreateFCmpOLT(x, lowest), lowest, x);
  Value* product = B.CreateFMul(x, scale);
  Value* lost = fma(x, scale, B.CreateFNeg(product));
  Value* power = B.CreateIntrinsic(llvm::Intrinsic::nvvm_ex2_approx_ftz_f, {}, {product});
  return fma(power, B.CreateFMul(lost, num(x, 0.693147182464599609375)), power);
}

// Of a quotient of at most 20 bits the whole part, rounded up a little, is right or one too great: what is left has no
// rounding error.
Value* DeviceBuilder::frem(Value* x, Value* y) {
  if (x->getType()->isDoubleTy()) return fmod(*this, x, y);
  Value *n = fabs(x), *d = fabs(y), *zero = num(x, 0.0);
  Value* quotient = B.CreateFMul(B.CreateFMul(n, reciprocal(*this, d)), num(x, 1 + 0x1p-21));
  Value* whole = B.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, quotient);
  Value* rest = fma(B.CreateFNeg(whole), d, n);
  rest = B.CreateSelect(B.CreateFCmpOLT(rest, zero), B.CreateFAdd(rest, d), rest);
  Value* near = B.CreateAnd(B.CreateFCmpOLT(quotient, num(x, 0x1p20)),
                            B.CreateAnd(B.CreateFCmpOGT(d, num(x, 0x1p-100)), B.CreateFCmpOLT(d, num(x, 0x1p100))));
  return rarely(B.CreateNot(near), copysign(rest, x),
                [&] { return B.CreateFPTrunc(fmod(*this, B.CreateFPExt(x, f64()), B.CreateFPExt(y, f64())), f32()); });
}

Value* DeviceBuilder::call_per_lane(const std::string& name, Type* element, llvm::ArrayRef<Value*> operands) {
  llvm::SmallVector<Value*, 3> v(operands.begin(), operands.end());
  if (name == "braze_ipow") return integer_power(*this, v[0], v[1]);
  bool single = element->isFloatTy();
  if (single)
    for (Value*& x : v) x = B.CreateFPExt(x, f64());
  Value* r = ir::math64::call(*this, single ? name.substr(0, name.size() - 1) : name, v);
  return single ? B.CreateFPTrunc(r, f32()) : r;
}

Value* emit_math(DeviceBuilder& b, OpCode code, Value* x, Value* y) {
  if (x->getType()->isFloatTy()) switch (code) {
      case OpCode::Exp: return exp(b, x);
      case OpCode::Sigmoid: return sigmoid(b, x);
      case OpCode::Tanh: return tanh(b, x);
      case OpCode::Erf: return erf(b, x);
      case OpCode::Log: return log(b, x);
      case OpCode::Log1p: return log1p(b, x);
      case OpCode::Rsqrt: return rsqrt(b, x);
      case OpCode::Atan2: return atan2(b, x, y);
      default: break;
    }
  return ir::emit_math(b, code, x, y);
}

}  // namespace braze::codegen::nvptx
