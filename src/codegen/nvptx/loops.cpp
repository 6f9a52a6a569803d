#include "codegen/nvptx/loops.h"

#include <cmath>
#include <functional>

#include "codegen/llvm/math64.h"

namespace braze::codegen::nvptx {
namespace {

using ir::VectorBuilder;
using llvm::Value;

// A loop that carries `values` while `go` holds of them.
using Carried = llvm::SmallVector<Value*, 4>;
Carried repeat(VectorBuilder& b, const Carried& values, const std::function<Value*(Carried&)>& go,
               const std::function<void(Carried&)>& step) {
  auto* f = b.B.GetInsertBlock()->getParent();
  auto block = [&] { return llvm::BasicBlock::Create(b.context(), "", f); };
  llvm::BasicBlock *before = b.B.GetInsertBlock(), *head = block(), *body = block(), *after;
  if (b.B.GetInsertPoint() == before->end()) {
    after = block();
  } else {  // inside of a branch
    after = before->splitBasicBlock(b.B.GetInsertPoint());
    before->getTerminator()->eraseFromParent();
    b.B.SetInsertPoint(before);
  }
  b.B.CreateBr(head);
  b.B.SetInsertPoint(head);
  Carried phis;
  for (Value* v : values) {
    auto* phi = b.B.CreatePHI(v->getType(), 2);
    phi->addIncoming(v, before);
    phis.push_back(phi);
  }
  b.B.CreateCondBr(go(phis), body, after);
  b.B.SetInsertPoint(body);
  Carried next = phis;
  step(next);
  for (size_t i = 0; i < phis.size(); ++i)
    llvm::cast<llvm::PHINode>(phis[i])->addIncoming(next[i], b.B.GetInsertBlock());
  b.B.CreateBr(head);
  b.B.SetInsertPoint(after, after->begin());
  return phis;
}

}  // namespace

// Long division: each turn subtracts a multiple of y times a power of two, with a quotient of at most 52 bits.
Value* fmod(VectorBuilder& b, Value* x, Value* y) {
  auto& B = b.B;
  Value *size = b.fabs(x), *d = b.fabs(y), *zero = b.num(x, 0.0), *infinity = b.num(x, INFINITY);
  Value* proper = B.CreateAnd(B.CreateFCmpOLT(size, infinity), B.CreateFCmpOGT(d, zero));
  Carried out = repeat(
      b, {B.CreateSelect(proper, size, zero)}, [&](Carried& c) { return B.CreateFCmpOGE(c[0], d); },
      [&](Carried& c) {
        Value* r = c[0];
        auto exponent = [&](Value* v) { return B.CreateLShr(b.bits(v), B.getInt64(52)); };
        Value* shift = B.CreateSub(B.CreateSub(exponent(r), exponent(d)), B.getInt64(50));
        shift = B.CreateSelect(B.CreateICmpSGT(shift, B.getInt64(0)), shift, B.getInt64(0));
        // The power alone may be out of range.
        Value* t = ir::math64::scale(b, d, B.CreateSIToFP(shift, b.f64()));
        Value* q = B.CreateUnaryIntrinsic(llvm::Intrinsic::trunc, B.CreateFDiv(r, t));
        Value* left = b.fma(B.CreateFNeg(q), t, r);
        c[0] = B.CreateSelect(B.CreateFCmpOLT(left, zero), B.CreateFAdd(left, t), left);
      });
  Value* r = b.copysign(out[0], x);
  Value* bad = B.CreateOr(B.CreateOr(B.CreateFCmpUNO(x, y), B.CreateFCmpOEQ(size, infinity)), B.CreateFCmpOEQ(d, zero));
  return B.CreateSelect(bad, b.num(x, NAN), r);
}

Value* integer_power(VectorBuilder& b, Value* x, Value* y) {
  auto& B = b.B;
  auto c = [&](int64_t n) { return B.getInt64(static_cast<uint64_t>(n)); };
  Value* negative = B.CreateICmpSLT(y, c(0));
  Carried out = repeat(
      b, {c(1), x, B.CreateSelect(negative, c(0), y)}, [&](Carried& v) { return B.CreateICmpNE(v[2], c(0)); },
      [&](Carried& v) {
        Value* odd = B.CreateICmpNE(B.CreateAnd(v[2], c(1)), c(0));
        v[0] = B.CreateSelect(odd, B.CreateMul(v[0], v[1]), v[0]);
        v[1] = B.CreateMul(v[1], v[1]);
        v[2] = B.CreateLShr(v[2], c(1));
      });
  Value* sign = B.CreateSelect(B.CreateICmpEQ(B.CreateAnd(y, c(1)), c(0)), c(1), c(-1));
  Value* inverse = B.CreateSelect(B.CreateICmpEQ(x, c(1)), c(1), B.CreateSelect(B.CreateICmpEQ(x, c(-1)), sign, c(0)));
  return B.CreateSelect(negative, inverse, out[0]);
}

}  // namespace braze::codegen::nvptx
