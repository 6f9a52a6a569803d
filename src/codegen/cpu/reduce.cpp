// Reductions: accumulators carried through the loops as SSA values, several per reduction to hide latency.
#include <cmath>
#include <limits>

#include "base/check.h"
#include "codegen/cpu/emitter.h"

namespace braze::codegen::cpu {

using loop::ReduceKind;

namespace {

bool is_arg(ReduceKind k) { return k == ReduceKind::ArgMax || k == ReduceKind::ArgMin; }
bool is_welford(ReduceKind k) { return k == ReduceKind::WelfordMean || k == ReduceKind::WelfordM2; }

}  // namespace

Type* Emitter::accumulator_type(const Accumulator& a, int part) {
  DType t = a.op->dtype;
  if (is_arg(a.op->reduce)) {
    if (part == 1) return B.getInt64Ty();
    t = a.operand;
  }
  return compute_type(vb_, t);
}

Value* Emitter::reduce_identity(const Accumulator& a, int part, Type* type) {
  Type* e = type->getScalarType();
  auto extreme = [&](bool lowest) -> Value* {
    if (e->isFloatingPointTy()) return vb_.num(type, lowest ? -INFINITY : INFINITY);
    unsigned w = e->getIntegerBitWidth();
    bool sign = a.operand != DType::U8 && a.operand != DType::Bool;
    llvm::APInt v = sign ? (lowest ? llvm::APInt::getSignedMinValue(w) : llvm::APInt::getSignedMaxValue(w))
                         : (lowest ? llvm::APInt::getMinValue(w) : llvm::APInt::getMaxValue(w));
    return llvm::ConstantInt::get(type, v);
  };
  switch (a.op->reduce) {
    case ReduceKind::Sum: return llvm::Constant::getNullValue(type);
    case ReduceKind::Prod: return e->isFloatingPointTy() ? vb_.num(type, 1.0) : vb_.integer(type, 1);
    case ReduceKind::Any: return vb_.integer(type, 0);
    case ReduceKind::All: return vb_.integer(type, 1);
    case ReduceKind::Max: return extreme(true);
    case ReduceKind::Min: return extreme(false);
    case ReduceKind::ArgMax: return part ? vb_.integer(type, std::numeric_limits<int64_t>::max()) : extreme(true);
    case ReduceKind::ArgMin: return part ? vb_.integer(type, std::numeric_limits<int64_t>::max()) : extreme(false);
    case ReduceKind::WelfordMean:
    case ReduceKind::WelfordM2: return llvm::Constant::getNullValue(type);
  }
  BRAZE_CHECK(false, "no such reduction");
}

Emitter::Values Emitter::begin_reductions(const loop::Stage& stage) {
  accumulators_.clear();
  Values carried;
  for (const LoopOp& op : stage.ops) {
    if (op.code != loop::OpCode::Reduce) continue;
    Accumulator a;
    a.op = &op;
    a.operand = DType::F32;
    for (const loop::Stage& s : nest_.stages)
      for (const LoopOp& def : s.ops)
        if (def.result == op.args[0]) a.operand = def.dtype;
    a.vec = width_ > 1;
    a.copies = outer_vector_ ? vector_.copies : a.vec ? stage_copies_ : 1;
    a.parts = is_welford(op.reduce) ? 3 : is_arg(op.reduce) ? 2 : 1;
    a.first = carried.size();
    bool shared = false;
    if (is_welford(op.reduce))
      for (const Accumulator& other : accumulators_)
        if (is_welford(other.op->reduce) && other.op->args[0] == op.args[0]) a.first = other.first, shared = true;
    if (!shared)
      for (int c = 0; c < a.copies; ++c)
        for (int p = 0; p < a.parts; ++p)
          carried.push_back(reduce_identity(a, p, VectorBuilder::vector(accumulator_type(a, p), a.vec ? width_ : 1)));
    accumulators_.push_back(a);
  }
  return carried;
}

void Emitter::combine(const Accumulator& a, Value** into, Value* const* from) {
  bool sign = a.operand != DType::U8 && a.operand != DType::Bool;
  Value *x = into[0], *y = from[0];
  bool fp = x->getType()->isFPOrFPVectorTy();
  bool boolean = x->getType()->isIntOrIntVectorTy(1);
  switch (a.op->reduce) {
    case ReduceKind::Sum: into[0] = fp ? B.CreateFAdd(x, y) : boolean ? B.CreateOr(x, y) : B.CreateAdd(x, y); return;
    case ReduceKind::Prod: into[0] = fp ? B.CreateFMul(x, y) : boolean ? B.CreateAnd(x, y) : B.CreateMul(x, y); return;
    case ReduceKind::Any: into[0] = B.CreateOr(x, y); return;
    case ReduceKind::All: into[0] = B.CreateAnd(x, y); return;
    case ReduceKind::Max: into[0] = emit_max(vb_, y, x, sign, false); return;
    case ReduceKind::Min: into[0] = emit_max(vb_, y, x, sign, true); return;
    case ReduceKind::ArgMax:
    case ReduceKind::ArgMin: {
      bool max = a.op->reduce == ReduceKind::ArgMax;
      Value *better, *equal;
      if (fp) {
        Value *nx = vb_.is_nan(x), *ny = vb_.is_nan(y);
        better = max ? B.CreateFCmpOGT(y, x) : B.CreateFCmpOLT(y, x);
        better = B.CreateOr(better, B.CreateAnd(ny, B.CreateNot(nx)));
        equal = B.CreateOr(B.CreateFCmpOEQ(x, y), B.CreateAnd(nx, ny));
      } else {
        better = max ? (sign ? B.CreateICmpSGT(y, x) : B.CreateICmpUGT(y, x)) : (sign ? B.CreateICmpSLT(y, x) : B.CreateICmpULT(y, x));
        equal = B.CreateICmpEQ(x, y);
      }
      better = B.CreateOr(better, B.CreateAnd(equal, B.CreateICmpSLT(from[1], into[1])));
      into[0] = B.CreateSelect(better, y, x);
      into[1] = B.CreateSelect(better, from[1], into[1]);
      return;
    }
    case ReduceKind::WelfordMean:
    case ReduceKind::WelfordM2: {  // parts: mean, sum of squared deviations, count
      Value* n = B.CreateFAdd(into[2], from[2]);
      Value* delta = B.CreateFSub(y, x);
      Value* some = B.CreateFCmpOGT(n, vb_.num(n, 0.0));
      Value* share = B.CreateFDiv(from[2], B.CreateSelect(some, n, vb_.num(n, 1.0)));
      into[0] = vb_.fma(delta, share, x);
      Value* cross = B.CreateFMul(B.CreateFMul(delta, delta), B.CreateFMul(into[2], share));
      into[1] = B.CreateFAdd(B.CreateFAdd(into[1], from[1]), cross);
      into[2] = n;
      return;
    }
  }
}

Value* Emitter::flat_index(int copy) {
  Expr flat = arena_.constant(0);
  for (const loop::Axis& a : stage_->axes) flat = arena_.add(arena_.mul(flat, a.extent), a.var);
  if (varies(flat)) return lane_values_as(flat, copy, B.getInt64Ty());
  return vb_.splat(emit(flat), width_);
}

void Emitter::update_reduction(Accumulator& a, const Lanes& operand, Values& carried) {
  Lanes x = operand;
  for (int c = 0; c < (a.vec ? vector_.copies : 1); ++c) {
    Value* v = a.vec ? copy_of(x, c) : x.v[0];
    if (!is_arg(a.op->reduce)) v = emit_cast(vb_, v, x.dtype, a.op->dtype);
    Value** slot = carried.data() + a.first + static_cast<size_t>(c) * a.parts;
    llvm::SmallVector<Value*, 3> next(slot, slot + a.parts);
    if (is_arg(a.op->reduce)) {
      Value* from[] = {v, flat_index(c)};
      combine(a, next.data(), from);
    } else if (is_welford(a.op->reduce)) {
      next[2] = B.CreateFAdd(slot[2], vb_.num(slot[2], 1.0));
      Value* delta = B.CreateFSub(v, slot[0]);
      next[0] = vb_.fma(delta, B.CreateFDiv(vb_.num(v, 1.0), next[2]), slot[0]);
      next[1] = vb_.fma(delta, B.CreateFSub(v, next[0]), slot[1]);
    } else {
      combine(a, next.data(), &v);
    }
    // Lanes of an outer vector are points of their own; what the idle ones hold is never stored.
    bool masked = a.vec && vector_.mask && !outer_vector_;
    for (int p = 0; p < a.parts; ++p) slot[p] = masked ? B.CreateSelect(vector_.mask, next[p], slot[p]) : next[p];
  }
}

void Emitter::finish_reductions(const loop::Stage& stage, const Values& carried) {
  for (const Accumulator& a : accumulators_) {
    int part = a.op->reduce == ReduceKind::WelfordM2 || is_arg(a.op->reduce) ? 1 : 0;
    Lanes out;
    out.dtype = a.op->dtype;
    out.depth = top();
    auto cast = [&](Value* v) { return is_arg(a.op->reduce) ? emit_cast(vb_, v, DType::I64, a.op->dtype) : v; };
    if (outer_vector_) {
      out.vec = true;
      for (int c = 0; c < a.copies; ++c) out.v.push_back(cast(carried[a.first + static_cast<size_t>(c) * a.parts + part]));
    } else {
      Values v(carried.begin() + a.first, carried.begin() + a.first + static_cast<size_t>(a.copies) * a.parts);
      for (int n = a.copies; n > 1; n = (n + 1) / 2)
        for (int c = 0; c < n / 2; ++c) combine(a, v.data() + c * a.parts, v.data() + (c + (n + 1) / 2) * a.parts);
      if (a.vec) {
        for (int n = width_; n > 1; n /= 2) {
          llvm::SmallVector<Value*, 3> low, high;
          llvm::SmallVector<int, 32> first, second;
          for (int l = 0; l < n / 2; ++l) first.push_back(l), second.push_back(l + n / 2);
          for (int p = 0; p < a.parts; ++p) {
            Value* x = v[p];
            if (n == 2) {
              low.push_back(B.CreateExtractElement(x, uint64_t(0)));
              high.push_back(B.CreateExtractElement(x, uint64_t(1)));
            } else {
              low.push_back(B.CreateShuffleVector(x, first));
              high.push_back(B.CreateShuffleVector(x, second));
            }
          }
          combine(a, low.data(), high.data());
          std::copy(low.begin(), low.end(), v.begin());
        }
      }
      out.v.push_back(cast(v[part]));
    }
    value(a.op->result) = std::move(out);
  }
}

Emitter::Values Emitter::restart(const Values& carried) {
  Values out = carried;
  for (const Accumulator& a : accumulators_)
    if (a.op->reduce == ReduceKind::Sum)
      for (int c = 0; c < a.copies; ++c) out[a.first + c] = llvm::Constant::getNullValue(carried[a.first + c]->getType());
  return out;
}

Emitter::Values Emitter::resume(const Values& before, const Values& after) {
  Values out = after;
  for (const Accumulator& a : accumulators_)
    if (a.op->reduce == ReduceKind::Sum)
      for (int c = 0; c < a.copies; ++c) {
        Value* sum = before[a.first + c];
        combine(a, &sum, &after[a.first + c]);
        out[a.first + c] = sum;
      }
  return out;
}

}  // namespace braze::codegen::cpu
