// Arithmetic on LLVM values that works alike for a scalar and for a vector of any width: the shape is the operand's
// type.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/float8.h"
#include "codegen/llvm/headers.h"

namespace braze::codegen::ir {

using llvm::Type;
using llvm::Value;

class VectorBuilder {
 public:
  explicit VectorBuilder(llvm::Module& m) : module(m), B(m.getContext()) {}
  virtual ~VectorBuilder() = default;
  VectorBuilder(const VectorBuilder&) = delete;
  VectorBuilder& operator=(const VectorBuilder&) = delete;
  llvm::Module& module;
  llvm::IRBuilder<> B;

  llvm::LLVMContext& context() { return module.getContext(); }
  Type* i1() { return B.getInt1Ty(); }
  Type* i8() { return B.getInt8Ty(); }
  Type* i16() { return B.getInt16Ty(); }
  Type* i32() { return B.getInt32Ty(); }
  Type* i64() { return B.getInt64Ty(); }
  Type* f32() { return B.getFloatTy(); }
  Type* f64() { return B.getDoubleTy(); }

  static unsigned lanes(Type* t) {
    auto* v = llvm::dyn_cast<llvm::FixedVectorType>(t);
    return v ? v->getNumElements() : 1;
  }
  static unsigned lanes(Value* v) { return lanes(v->getType()); }
  static bool is_vector(Value* v) { return v->getType()->isVectorTy(); }
  // `element` in the shape of `shape`.
  static Type* like(Type* shape, Type* element) {
    auto* v = llvm::dyn_cast<llvm::FixedVectorType>(shape);
    return v ? llvm::FixedVectorType::get(element, v->getNumElements()) : element;
  }
  static Type* like(Value* shape, Type* element) { return like(shape->getType(), element); }
  static Type* vector(Type* element, unsigned n) {
    return n > 1 ? (Type*)llvm::FixedVectorType::get(element, n) : element;
  }

  Value* num(Type* t, double x) { return llvm::ConstantFP::get(t, x); }
  Value* num(Value* like, double x) { return num(like->getType(), x); }
  Value* integer(Type* t, int64_t x) { return llvm::ConstantInt::get(t, static_cast<uint64_t>(x), true); }
  Value* integer(Value* like, int64_t x) { return integer(like->getType(), x); }
  Value* splat(Value* scalar, unsigned n) { return n > 1 ? B.CreateVectorSplat(n, scalar) : scalar; }
  Value* iota(Type* element, unsigned n);  // 0, 1, ... n-1

  Value* fma(Value* a, Value* b, Value* c) {
    return B.CreateIntrinsic(llvm::Intrinsic::fma, {a->getType()}, {a, b, c});
  }
  Value* horner(Value* x, std::initializer_list<double> highest_first);
  // The same of even and odd powers apart, which takes little more than half the time; `square` is x^2.
  Value* two_chains(Value* x, Value* square, std::initializer_list<double> highest_first);
  // One minps/maxps: the second operand where either is NaN, so a NaN in `x` passes a constant bound.
  Value* at_most(Value* bound, Value* x) { return B.CreateSelect(B.CreateFCmpOLT(bound, x), bound, x); }
  Value* at_least(Value* bound, Value* x) { return B.CreateSelect(B.CreateFCmpOGT(bound, x), bound, x); }
  Value* fabs(Value* x) { return B.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, x); }
  Value* copysign(Value* magnitude, Value* sign) {
    return B.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, magnitude, sign);
  }
  // The same for a magnitude that has no sign itself.
  Value* with_sign(Value* magnitude, Value* sign) {
    Value *m = bits(magnitude), *lowest = B.CreateShl(integer(m, 1), m->getType()->getScalarSizeInBits() - 1);
    return unbits(B.CreateOr(m, B.CreateAnd(bits(sign), lowest)));
  }
  Value* round_even(Value* x) { return B.CreateUnaryIntrinsic(llvm::Intrinsic::roundeven, x); }
  Value* is_nan(Value* x) { return B.CreateFCmpUNO(x, x); }
  Value* bits(Value* x);    // a float as integer of the same width
  Value* unbits(Value* x);  // and back
  // f32 rounded to bf16, as i16; NaN stays NaN.
  virtual Value* to_bf16(Value* x);
  // Whether fma is an instruction, and whether there is a C library to call.
  virtual bool has_fma() const { return false; }
  virtual bool has_c_library() const { return true; }
  // What some targets have instructions for; nullptr: this one has none for values of this shape.
  virtual Value* native_max(Value*, Value*, bool /*minimum*/) { return nullptr; }  // of two floats, NaN if either is
  virtual Value* native_reciprocal(Value*) { return nullptr; }                     // to 14 bits
  // p * 2^n, n integral, rounded once; 0 in lanes that are `gone` (null: none is).
  virtual bool has_native_scale(Value* /*p*/) const { return false; }
  virtual Value* native_scale(Value* /*p*/, Value* /*n*/, Value* /*gone*/) { return nullptr; }
  // A result that is no normal number takes a hundred times as long, 0 that it was rounded to as well.
  virtual bool slow_underflow() const { return true; }
  // A float of a byte as f32 and back (codegen/llvm/float8.h).
  virtual Value* native_from_float8(const Float8&, Value* /*bits*/) { return nullptr; }
  virtual Value* native_to_float8(const Float8&, Value*) { return nullptr; }
  // e^x for x that is NaN or not above 0; where that is less than a normal number it may be 0.
  virtual Value* native_exp_below(Value*) { return nullptr; }
  // How many floats of a table lanes shaped like `x` can pick from, each by an index of its own; 0: none.
  virtual unsigned native_table(Value* /*x*/) const { return 0; }
  virtual Value* pick(llvm::ArrayRef<float> /*table*/, Value* /*index*/) { return nullptr; }
  // `fast`, or where any lane of `condition` holds, what `slow` makes for all lanes: behind a branch.
  Value* rarely(Value* condition, Value* fast, llvm::function_ref<Value*()> slow);
  // The C library's fmod.
  virtual Value* frem(Value* x, Value* y);
  // Calls the C function `name` for every lane; all operands of one shape. A target without a C library overrides it.
  virtual Value* call_per_lane(const std::string& name, Type* element, llvm::ArrayRef<Value*> operands);
  // An elementary function, named as in C for double ("sin"), of all lanes of the operands (one shape, f32 or f64).
  virtual Value* call_library(std::string_view name, llvm::ArrayRef<Value*> operands);
  llvm::FunctionCallee declare(const std::string& name, Type* result, llvm::ArrayRef<Type*> parameters);
  // Starts a block that runs only where the scalar `condition` holds, and leaves the builder in it; `end` continues
  // after it.
  llvm::Instruction* begin_if(Value* condition, bool unlikely);
  void end_if(llvm::Instruction* resume);

 private:
  llvm::SmallVector<llvm::BasicBlock*, 2> resume_blocks;  // of open ifs that began at the end of an unfinished block
};

}  // namespace braze::codegen::ir
