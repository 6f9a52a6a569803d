// One op of a stage, for all points in flight.
#include "base/check.h"
#include "codegen/cpu/emitter.h"
#include "codegen/llvm/interleave.h"
#include "codegen/llvm/math.h"
#include "loop/analysis.h"
#include "loop/value_range.h"

namespace braze::codegen::cpu {

using loop::OpCode;

void Emitter::run_ops(const loop::Stage& stage, Values* carried) {
  size_t reductions = 0;
  for (const LoopOp& op : stage.ops) {
    if (!loop::accumulates(op.code)) {
      emit_op(op);
    } else if (carried) {
      const Accumulator& a = accumulators_[reductions++];
      if (op.code == OpCode::Scan)
        value(op.result) = update_scan(a, value(op.args[0]), *carried);
      else
        update_reduction(a, value(op.args[0]), *carried);
    } else {
      // Over no axis: the value itself.
      Lanes x = value(op.args[0]);
      loop::ReduceAlone alone = loop::reduce_row(op.reduce).alone;
      for (Value*& v : x.v) {
        v = emit_cast(vb_, v, x.dtype, op.dtype);
        if (alone == loop::ReduceAlone::Zero) v = llvm::Constant::getNullValue(v->getType());
        if (alone == loop::ReduceAlone::Deviation) v = B.CreateFSub(v, v);
        if (alone == loop::ReduceAlone::Unit) v = B.CreateFAdd(B.CreateFSub(v, v), vb_.num(v, 1.0));
      }
      x.dtype = op.dtype;
      x.wide = nullptr;
      x.depth = top();
      value(op.result) = std::move(x);
    }
  }
}

void Emitter::emit_op(const LoopOp& op) {
  switch (op.code) {
    case OpCode::Load: emit_load(op); return;
    case OpCode::Store: emit_store(op); return;
    case OpCode::Index: emit_index(op); return;
    case OpCode::Indirect: emit_indirect(op); return;
    case OpCode::Const: {
      Lanes out;
      out.dtype = op.dtype;
      Type* t = compute_type(vb_, op.dtype);
      const Float8* format = float8(op.dtype);
      out.v.push_back(format                    ? vb_.integer(t, to_float8(*format, static_cast<float>(op.number)))
                      : is_floating(op.dtype)   ? vb_.num(t, op.number)
                      : op.dtype == DType::Bool ? vb_.integer(t, op.integer != 0)
                                                : vb_.integer(t, op.integer));
      value(op.result) = std::move(out);
      return;
    }
    default: emit_pure(op); return;
  }
}

Value* Emitter::copy_of(Lanes& x, int copy) {
  if (x.vec) return x.v[static_cast<size_t>(copy)];
  if (width_ == 1) return x.v[0];
  if (!x.wide) x.wide = at_depth(x.depth, [&] { return vb_.splat(x.v[0], width_); });
  return x.wide;
}

void Emitter::emit_pure(const LoopOp& op) {
  Lanes out;
  out.dtype = op.dtype;
  std::array<DType, 3> types{};
  std::array<Lanes*, 3> args{};
  size_t copies = 1;
  for (size_t i = 0; i < 3 && op.args[i].valid(); ++i) {
    args[i] = &value(op.args[i]);
    types[i] = args[i]->dtype;
    out.vec |= args[i]->vec;
    out.depth = std::max(out.depth, args[i]->depth);
    if (args[i]->vec) copies = std::max(copies, args[i]->v.size());
  }
  // Where each copy's instructions end, and what they follow.
  llvm::BasicBlock* block = B.GetInsertBlock();
  llvm::SmallVector<llvm::Instruction*, 8> ends{last_instruction()};
  for (size_t c = 0; c < copies; ++c) {
    std::array<Value*, 3> v{};
    for (size_t i = 0; i < 3; ++i)
      if (args[i]) v[i] = out.vec ? copy_of(*args[i], static_cast<int>(c)) : args[i]->v[0];
    out.v.push_back(at_depth(out.depth, [&] {
      if (loop::divides_integers(op)) check_divisor(emit_cast(vb_, v[1], types[1], op.dtype));
      return emit_arith(vb_, op, types, v);
    }));
    ends.push_back(last_instruction());
  }
  if (B.GetInsertBlock() == block)
    for (size_t c = 0; c + 1 < copies; c += 2) ir::take_turns(ends[c], ends[c + 1], ends[c + 2]);
  value(op.result) = std::move(out);
}

// What was emitted last in the block at hand; nullptr: nothing.
llvm::Instruction* Emitter::last_instruction() {
  auto here = B.GetInsertPoint();
  return here == B.GetInsertBlock()->begin() ? nullptr : &*std::prev(here);
}

void Emitter::check_divisor(Value* divisor) {
  auto* c = llvm::dyn_cast<llvm::Constant>(divisor);
  if (c && c->getType()->isVectorTy()) c = c->getSplatValue();
  if (c && !c->isNullValue()) return;
  report_if(B.CreateICmpEQ(divisor, vb_.integer(divisor, 0)), {loop::Fault::Division}, nullptr, nullptr);
}

void Emitter::emit_index(const LoopOp& op) {
  Lanes out;
  out.dtype = op.dtype;
  if (varies(op.index)) {
    out.vec = true;
    out.depth = top();
    for (int c = 0; c < vector_.copies; ++c) {
      bool narrow = op.dtype != DType::I64 && op.dtype != DType::F64 && fits_i32(op.index);
      Value* v = lane_values_as(op.index, c, narrow ? B.getInt32Ty() : B.getInt64Ty());
      out.v.push_back(emit_cast(vb_, v, narrow ? DType::I32 : DType::I64, op.dtype));
    }
  } else {
    out.depth = depth_of(op.index);
    Value* v = emit(op.index);
    out.v.push_back(at_depth(out.depth, [&] { return emit_cast(vb_, v, DType::I64, op.dtype); }));
  }
  value(op.result) = std::move(out);
}

// Reports a fault where the condition (one bit or one per lane) holds in a lane that is in use.
void Emitter::report_if(Value* bad, loop::IndexCheck what, Value* value, Value* bound) {
  bool vec = VectorBuilder::is_vector(bad);
  if (vec && vector_.mask) bad = B.CreateAnd(bad, vector_.mask);
  auto report = vb_.declare("braze_fault", B.getVoidTy(), {B.getInt64Ty(), B.getInt64Ty(), B.getInt64Ty()});
  llvm::Instruction* resume = vb_.begin_if(vec ? B.CreateOrReduce(bad) : bad, true);
  if (vec && value) {
    Type* bits = B.getIntNTy(VectorBuilder::lanes(bad));
    Value* first = B.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, B.CreateBitCast(bad, bits), B.getTrue());
    value = B.CreateExtractElement(value, first);
  }
  Value* none = B.getInt64(0);
  B.CreateCall(report, {B.getInt64(static_cast<uint64_t>(what.fault) | static_cast<uint64_t>(what.dim) << 8),
                        value ? value : none, bound ? bound : none});
  vb_.end_if(resume);
}

// Binds an index that was loaded. What is out of range is reported and reads element 0.
void Emitter::emit_indirect(const LoopOp& op) {
  Lanes& x = value(op.args[0]);
  Lanes out;
  out.dtype = DType::I64;
  out.vec = x.vec;
  out.depth = std::max(x.depth, depth_of(op.bound));
  Value* bound = emit(op.bound);
  const bool inside = loop::is_inside(program_, nest_, op);
  for (size_t c = 0; c < x.v.size(); ++c) {
    out.v.push_back(at_depth(out.depth, [&] {
      if (inside) return emit_cast(vb_, x.v[c], x.dtype, x.vec ? DType::I32 : DType::I64);
      Value* v = emit_cast(vb_, x.v[c], x.dtype, DType::I64);
      Value* limit = x.vec ? vb_.splat(bound, width_) : bound;
      Value* at = v;
      if (op.check.wrap) at = B.CreateSelect(B.CreateICmpSLT(v, vb_.integer(v, 0)), B.CreateAdd(v, limit), v);
      Value* bad = B.CreateICmpUGE(at, limit);  // negative ones, too
      report_if(bad, op.check, v, bound);
      return B.CreateSelect(bad, vb_.integer(at, 0), at);
    }));
  }
  int depth = out.depth;
  symbols_[op.index.id] = {std::move(out), depth};
  depths_.clear();
  for (Scope& s : scopes_) {
    std::erase_if(s.exprs, [&](auto& kv) { return arena_.contains(Expr{kv.first}, op.index); });
    std::erase_if(s.pointers, [&](auto& kv) { return arena_.contains(Expr{kv.first.second}, op.index); });
  }
}

}  // namespace braze::codegen::cpu
