#include "codegen/llvm/vector_builder.h"

#include <cmath>

namespace braze::codegen::ir {

Value* VectorBuilder::iota(Type* element, unsigned n) {
  if (n == 1) return llvm::ConstantInt::get(element, 0);
  llvm::SmallVector<llvm::Constant*, 32> c;
  for (unsigned i = 0; i < n; ++i) c.push_back(llvm::ConstantInt::get(element, i));
  return llvm::ConstantVector::get(c);
}

Value* VectorBuilder::horner(Value* x, std::initializer_list<double> highest_first) {
  Value* p = nullptr;
  for (double c : highest_first) p = p ? fma(p, x, num(x, c)) : num(x, c);
  return p;
}

Value* VectorBuilder::two_chains(Value* x, Value* square, std::initializer_list<double> highest_first) {
  Value* sums[2] = {nullptr, nullptr};  // of the powers like the highest, and of the others
  size_t k = 0;
  for (double c : highest_first) {
    Value*& sum = sums[k++ % 2];
    sum = sum ? fma(sum, square, num(x, c)) : num(x, c);
  }
  return k % 2 ? fma(sums[1], x, sums[0]) : fma(sums[0], x, sums[1]);
}

Value* VectorBuilder::bits(Value* x) {
  unsigned width = x->getType()->getScalarSizeInBits();
  return B.CreateBitCast(x, like(x, B.getIntNTy(width)));
}

Value* VectorBuilder::unbits(Value* x) {
  unsigned width = x->getType()->getScalarSizeInBits();
  return B.CreateBitCast(x, like(x, width == 64 ? f64() : width == 32 ? f32() : B.getHalfTy()));
}

// Round to nearest even on the upper half. (The instruction for it flushes denormals.) One less is added where what is
// kept is even, which is a comparison and not a shift: of those CPUs do fewer at a time.
Value* VectorBuilder::to_bf16(Value* x) {
  Value* i = bits(x);
  Value* even = B.CreateICmpEQ(B.CreateAnd(i, integer(i, 0x10000)), integer(i, 0));
  Value* up = B.CreateAdd(B.CreateAdd(i, integer(i, 0x8000)), B.CreateSExt(even, i->getType()));
  Value* r = B.CreateSelect(is_nan(x), integer(i, 0x7fc0), B.CreateLShr(up, integer(i, 16)));
  return B.CreateTrunc(r, like(x, i16()));
}

Value* VectorBuilder::frem(Value* x, Value* y) {
  Type* element = x->getType()->getScalarType();
  bool wide = element->isDoubleTy();
  auto exact = [&] { return call_per_lane(wide ? "fmod" : "fmodf", element, {x, y}); };
  if (!is_vector(x)) return exact();
  // Of a quotient of few enough bits the whole part is right or one too great, and what is left has no rounding error.
  // NaN comes of itself where the quotient has no whole part.
  Value *n = fabs(x), *d = fabs(y), *zero = num(x, 0.0), *quotient = B.CreateFDiv(n, d);
  Value* whole = B.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, quotient);
  Value* rest = fma(B.CreateFNeg(whole), d, n);
  rest = B.CreateSelect(B.CreateFCmpOLT(rest, zero), B.CreateFAdd(rest, d), rest);
  rest = B.CreateSelect(B.CreateFCmpOEQ(whole, zero), n, rest);  // also of an infinite divisor
  Value* far = B.CreateAnd(B.CreateFCmpOGE(quotient, num(x, wide ? 0x1p51 : 0x1p22)),
                           B.CreateAnd(B.CreateFCmpOLT(n, num(x, INFINITY)), B.CreateFCmpOGT(d, zero)));
  return rarely(far, copysign(rest, x), exact);
}

Value* VectorBuilder::rarely(Value* condition, Value* fast, llvm::function_ref<Value*()> slow) {
  llvm::BasicBlock* straight = B.GetInsertBlock();
  llvm::Instruction* resume = begin_if(is_vector(condition) ? B.CreateOrReduce(condition) : condition, true);
  Value* other = slow();
  llvm::BasicBlock* from = B.GetInsertBlock();
  end_if(resume);
  llvm::BasicBlock* after = B.GetInsertBlock();
  llvm::PHINode* merged = llvm::PHINode::Create(fast->getType(), 2, "", after->begin());
  merged->addIncoming(fast, straight);
  merged->addIncoming(other, from);
  return merged;
}

llvm::FunctionCallee VectorBuilder::declare(const std::string& name, Type* result, llvm::ArrayRef<Type*> parameters) {
  auto callee = module.getOrInsertFunction(name, llvm::FunctionType::get(result, parameters, false));
  auto* f = llvm::cast<llvm::Function>(callee.getCallee());
  f->setDoesNotThrow();
  return callee;
}

Value* VectorBuilder::call_per_lane(const std::string& name, Type* element, llvm::ArrayRef<Value*> operands) {
  llvm::SmallVector<Type*, 3> types;
  for (Value* v : operands) types.push_back(v->getType()->getScalarType());
  auto callee = declare(name, element, types);
  auto* f = llvm::cast<llvm::Function>(callee.getCallee());
  f->setMemoryEffects(llvm::MemoryEffects::none());
  f->setWillReturn();
  unsigned n = lanes(operands[0]);
  if (n == 1) {
    llvm::SmallVector<Value*, 3> args(operands.begin(), operands.end());
    return B.CreateCall(callee, args);
  }
  Value* out = llvm::PoisonValue::get(llvm::FixedVectorType::get(element, n));
  for (unsigned l = 0; l < n; ++l) {
    llvm::SmallVector<Value*, 3> args;
    for (Value* v : operands) args.push_back(B.CreateExtractElement(v, l));
    out = B.CreateInsertElement(out, B.CreateCall(callee, args), l);
  }
  return out;
}

Value* VectorBuilder::call_library(std::string_view name, llvm::ArrayRef<Value*> operands) {
  Type* element = operands[0]->getType()->getScalarType();
  return call_per_lane(std::string(name) + (element->isDoubleTy() ? "" : "f"), element, operands);
}

llvm::Instruction* VectorBuilder::begin_if(Value* condition, bool unlikely) {
  // The block may have no terminator yet, which splitting needs.
  llvm::BasicBlock* block = B.GetInsertBlock();
  llvm::Instruction* stand_in = nullptr;
  llvm::Instruction* before;
  if (B.GetInsertPoint() == block->end()) {
    before = stand_in = B.CreateUnreachable();
  } else {
    before = &*B.GetInsertPoint();
  }
  llvm::MDNode* weights = unlikely ? llvm::MDBuilder(context()).createBranchWeights(1, 1 << 20) : nullptr;
  llvm::Instruction* then = llvm::SplitBlockAndInsertIfThen(condition, before, false, weights);
  if (stand_in) {
    // The tail holds only the stand-in: resume at its end.
    llvm::BasicBlock* tail = stand_in->getParent();
    stand_in->eraseFromParent();
    before = nullptr;
    B.SetInsertPoint(then);
    resume_blocks.push_back(tail);
    return nullptr;
  }
  B.SetInsertPoint(then);
  return before;
}

void VectorBuilder::end_if(llvm::Instruction* resume) {
  if (resume) {
    B.SetInsertPoint(resume);
  } else {
    B.SetInsertPoint(resume_blocks.back());
    resume_blocks.pop_back();
  }
}

}  // namespace braze::codegen::ir
