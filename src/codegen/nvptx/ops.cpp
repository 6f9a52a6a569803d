// The operations of a stage, for all elements that a thread has in flight.
#include <algorithm>
#include <array>
#include <limits>

#include "codegen/llvm/math.h"
#include "codegen/nvptx/emitter.h"
#include "codegen/nvptx/math.h"
#include "loop/analysis.h"
#include "loop/value_range.h"

namespace braze::codegen::nvptx {

using loop::OpCode;
using loop::Stage;

namespace {

// Of bytes as floats: as the last bits of 2**23, which integer and floating-point units make at full rate, where the
// conversion runs at an eighth of that.
Value* float_of_byte(ir::VectorBuilder& vb, Value* v, bool sign) {
  auto& B = vb.B;
  if (sign) v = B.CreateXor(v, vb.integer(v, 0x80));
  Value* bits = B.CreateOr(B.CreateZExt(v, vb.i32()), vb.integer(vb.i32(), 0x4B000000));
  Value* f = B.CreateBitCast(bits, B.getFloatTy());
  return B.CreateFSub(f, vb.num(f, sign ? 8388608.0 + 128.0 : 8388608.0));
}

}  // namespace

// Stores of one statement before loads of the next, in a nest of several: as far as the compiler knows they may meet,
// so each load would wait for the memory by itself. As many as there are registers for are on their way at once.
bool Emitter::loads_together(const Stage& stage) const {
  bool stored = false, mixed = false;
  int64_t words = 0;
  for (const LoopOp& op : stage.ops) {
    stored |= op.code == OpCode::Store;
    if (op.code != OpCode::Load) continue;
    mixed |= stored;
    words += std::max<int64_t>(1, int64_t{flight_.elements()} * size_of(program_.buffers[op.buffer].dtype) / 4);
  }
  return mixed && words <= kMostWordsAhead;
}

void Emitter::run_ops(const Stage& stage, Values* carried) {
  size_t reductions = 0;
  const bool waited = waited_, together = loads_together(stage);
  auto is_ahead = [&](const LoopOp& op) { return !waited && is_steady(op.buffer); };
  auto comes_first = [&](const LoopOp& op) {
    return op.code == OpCode::Load && !loop::is_indirect(arena_, op.index) &&
           (is_ahead(op) || (together && !stores_to(op.buffer)));
  };
  for (const LoopOp& op : stage.ops)
    if (comes_first(op) && is_ahead(op)) emit_op(op);
  for (const LoopOp& op : stage.ops)
    if (comes_first(op) && !is_ahead(op)) emit_op(op);
  for (const LoopOp& op : stage.ops) {
    if (comes_first(op)) continue;
    if (op.code != OpCode::Reduce) {
      emit_op(op);
    } else if (carried) {
      update_reduction(accumulators_[reductions++], values_[op.args[0].index], *carried);
    } else {
      // Over no axis: the value itself.
      Lanes x = values_[op.args[0].index];
      loop::ReduceAlone alone = loop::reduce_row(op.reduce).alone;
      for (Value*& v : x.v) {
        v = ir::emit_cast(vb_, v, x.dtype, op.dtype);
        if (alone == loop::ReduceAlone::Zero) v = llvm::Constant::getNullValue(v->getType());
        if (alone == loop::ReduceAlone::Deviation) v = B.CreateFSub(v, v);
        if (alone == loop::ReduceAlone::Unit) v = B.CreateFAdd(B.CreateFSub(v, v), vb_.num(v, 1.0));
      }
      x.dtype = op.dtype;
      values_[op.result.index] = std::move(x);
    }
  }
}

void Emitter::emit_op(const LoopOp& op) {
  switch (op.code) {
    case OpCode::Load: emit_load(op); return;
    case OpCode::Store: emit_store(op); return;
    case OpCode::Indirect: emit_indirect(op); return;
    case OpCode::Index: {
      Lanes out;
      out.dtype = op.dtype;
      int n = varies(op.index) ? flight_.elements() : 1;
      bool wide = !fits_i32(op.index);
      for (int e = 0; e < n; ++e)
        out.v.push_back(ir::emit_cast(vb_, emit(op.index, e, wide), wide ? DType::I64 : DType::I32, op.dtype));
      values_[op.result.index] = std::move(out);
      return;
    }
    case OpCode::Const: {
      Lanes out;
      out.dtype = op.dtype;
      Type* t = ir::compute_type(vb_, op.dtype);
      const Float8* format = float8(op.dtype);
      out.v.push_back(format                  ? vb_.integer(t, to_float8(*format, static_cast<float>(op.number)))
                      : is_floating(op.dtype) ? vb_.num(t, op.number)
                                              : vb_.integer(t, op.dtype == DType::Bool ? op.integer != 0 : op.integer));
      values_[op.result.index] = std::move(out);
      return;
    }
    default: emit_pure(op); return;
  }
}

void Emitter::emit_pure(const LoopOp& op) {
  Lanes out;
  out.dtype = op.dtype;
  std::array<DType, 3> types{};
  std::array<const Lanes*, 3> args{};
  size_t n = 1;
  for (size_t i = 0; i < 3 && op.args[i].valid(); ++i) {
    args[i] = &values_[op.args[i].index];
    types[i] = args[i]->dtype;
    n = std::max(n, args[i]->v.size());
  }
  if (op.code == OpCode::Div && n > 1 && args[1]->uniform() && ir::compute_type(vb_, op.dtype)->isFloatTy()) {
    divide_all(op, *args[0], *args[1]);
    return;
  }
  bool math = (ir::is_math(op.code) && is_floating(op.dtype)) ||
              (op.code == OpCode::Rsqrt && ir::compute_type(vb_, op.dtype)->isFloatTy());
  bool of_bytes = op.code == OpCode::Cast && (types[0] == DType::I8 || types[0] == DType::U8) &&
                  ir::compute_type(vb_, op.dtype)->isFloatTy();
  for (size_t e = 0; e < n; ++e) {
    std::array<Value*, 3> v{};
    for (size_t i = 0; i < 3; ++i)
      if (args[i]) v[i] = args[i]->at(static_cast<int>(e));
    if (of_bytes) {
      out.v.push_back(float_of_byte(vb_, v[0], types[0] == DType::I8));
    } else if (math) {
      Value* x = ir::emit_cast(vb_, v[0], types[0], op.dtype);
      Value* y = v[1] ? ir::emit_cast(vb_, v[1], types[1], op.dtype) : nullptr;
      out.v.push_back(emit_math(vb_, op.code, x, y));
    } else {
      out.v.push_back(ir::emit_arith(vb_, op, types, v));
    }
  }
  values_[op.result.index] = std::move(out);
}

// Many quotients by one divisor: its reciprocal once, then per quotient one step of Newton's method on the remainder,
// which rounds as division does but where the quotient is denormal.
void Emitter::divide_all(const LoopOp& op, const Lanes& dividends, const Lanes& divisor) {
  Lanes out;
  out.dtype = op.dtype;
  Value* d = ir::emit_cast(vb_, divisor.v[0], divisor.dtype, op.dtype);
  // A tiny divisor is scaled up with the dividends: its reciprocal may be out of range.
  Value* tiny = B.CreateFCmpOLT(vb_.fabs(d), vb_.num(d, 0x1p-100));
  Value* factor = B.CreateSelect(tiny, vb_.num(d, 0x1p64), vb_.num(d, 1.0));
  d = B.CreateFMul(d, factor);
  Value* r = B.CreateFDiv(vb_.num(d, 1.0), d);
  for (Value* dividend : dividends.v) {
    Value* x = B.CreateFMul(ir::emit_cast(vb_, dividend, dividends.dtype, op.dtype), factor);
    Value* q = B.CreateFMul(x, r);
    Value* better = vb_.fma(vb_.fma(B.CreateFNeg(q), d, x), r, q);
    Value* finite = B.CreateFCmpOLT(vb_.fabs(better), vb_.num(d, std::numeric_limits<double>::infinity()));
    out.v.push_back(B.CreateSelect(finite, better, q));
  }
  values_[op.result.index] = std::move(out);
}

// Binds an index that was loaded; what is out of range is reported and reads element 0.
void Emitter::emit_indirect(const LoopOp& op) {
  const Lanes& x = values_[op.args[0].index];
  Lanes out;
  out.dtype = DType::I64;
  const bool inside = loop::is_inside(program_, nest_, op);
  for (size_t e = 0; e < x.v.size(); ++e) {
    if (inside) {
      out.v.push_back(ir::emit_cast(vb_, x.v[e], x.dtype, DType::I64));
      continue;
    }
    Value* bound = emit(op.bound, static_cast<int>(e), true);
    Value* v = ir::emit_cast(vb_, x.v[e], x.dtype, DType::I64);
    Value* at = op.check.wrap ? B.CreateSelect(B.CreateICmpSLT(v, B.getInt64(0)), B.CreateAdd(v, bound), v) : v;
    Value* bad = B.CreateICmpUGE(at, bound);  // negative ones, too
    Value* report = bad;
    if (!x.uniform())
      if (Value* active = flight_.active_at(static_cast<int>(e) / flight_.lanes)) report = B.CreateAnd(bad, active);
    if_then(report, [&] { B.CreateStore(B.getInt32(1), error_, /*isVolatile=*/true); });
    out.v.push_back(B.CreateSelect(bad, B.getInt64(0), at));
  }
  bool same = true;  // in the lanes of each copy
  for (size_t e = 0; e < x.v.size(); ++e)
    same = same && x.v[e] == x.v[e / static_cast<size_t>(flight_.lanes) * static_cast<size_t>(flight_.lanes)];
  bind(op.index, std::move(out), same);
}

}  // namespace braze::codegen::nvptx
