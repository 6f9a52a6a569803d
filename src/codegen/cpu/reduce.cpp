// Reductions: accumulators carried through the loops as SSA values, several per reduction to hide latency.

#include "base/check.h"
#include "codegen/cpu/combine.h"
#include "codegen/cpu/emitter.h"
#include "loop/analysis.h"

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
  return cpu::reduce_identity(vb_, a.op->reduce, a.operand, part, type);
}

Emitter::Values Emitter::begin_reductions(const loop::Stage& stage) {
  accumulators_.clear();
  Values carried;
  for (const LoopOp& op : stage.ops) {
    if (op.code != loop::OpCode::Reduce) continue;
    Accumulator a;
    a.op = &op;
    a.operand = loop::dtype_of(nest_, op.args[0]).value_or(DType::F32);
    a.vec = width_ > 1;
    a.copies = outer_vector_ ? vector_.copies : a.vec ? stage_copies_ : 1;
    a.parts = is_welford(op.reduce) || is_arg(op.reduce) ? 2 : 1;
    a.first = carried.size();
    bool shared = false;
    if (is_welford(op.reduce))
      for (const Accumulator& other : accumulators_)
        if (is_welford(other.op->reduce) && other.op->args[0] == op.args[0]) a.first = other.first, shared = true;
    auto zero = [&](Type* t) { carried.push_back(llvm::Constant::getNullValue(t)); };
    if (!shared) {
      for (int c = 0; c < a.copies; ++c)
        for (int p = 0; p < a.parts; ++p)
          carried.push_back(reduce_identity(a, p, VectorBuilder::vector(accumulator_type(a, p), a.vec ? width_ : 1)));
      if (is_welford(op.reduce)) {
        Type* element = accumulator_type(a, 0);
        zero(element);
        if (a.vec && !outer_vector_)
          for (int p = 0; p < 3; ++p) zero(VectorBuilder::vector(element, width_));
      }
    }
    accumulators_.push_back(a);
  }
  return carried;
}

void Emitter::combine(const Accumulator& a, Value** into, Value* const* from) {
  reduce_combine(vb_, a.op->reduce, a.operand, into, from);
}

Value* Emitter::flat_index(int copy) {
  Expr flat = arena_.constant(0);
  for (const loop::Axis& a : stage_->axes) flat = arena_.add(arena_.mul(flat, a.extent), a.var);
  if (varies(flat)) return lane_values_as(flat, copy, B.getInt64Ty());
  return vb_.splat(emit(flat), width_);
}

void Emitter::update_reduction(Accumulator& a, const Lanes& operand, Values& carried) {
  for (const Accumulator& other : accumulators_) {  // mean and M2 of one value share their parts: updated once
    if (&other == &a) break;
    if (other.first == a.first) return;
  }
  if (is_welford(a.op->reduce)) {
    update_welford(a, operand, carried);
    return;
  }
  Lanes x = operand;
  for (int c = 0; c < (a.vec ? vector_.copies : 1); ++c) {
    Value* v = a.vec ? copy_of(x, c) : x.v[0];
    if (!is_arg(a.op->reduce)) v = emit_cast(vb_, v, x.dtype, a.op->dtype);
    Value** slot = carried.data() + a.first + static_cast<size_t>(c) * a.parts;
    llvm::SmallVector<Value*, 3> next(slot, slot + a.parts);
    if (is_arg(a.op->reduce)) {
      Value* from[] = {v, flat_index(c)};
      combine(a, next.data(), from);
    } else {
      combine(a, next.data(), &v);
    }
    // Lanes of an outer vector are points of their own; what the idle ones hold is never stored.
    bool masked = a.vec && vector_.mask && !outer_vector_;
    for (int p = 0; p < a.parts; ++p) slot[p] = masked ? B.CreateSelect(vector_.mask, next[p], slot[p]) : next[p];
  }
}

// All copies and lanes take a value each in every step, so that they share one count and one division. What runs under a mask
// goes to three vectors of its own, with a count per lane. Carried: (mean, m2) per copy, the count, then (mean, m2, count).
void Emitter::update_welford(const Accumulator& a, Lanes x, Values& carried) {
  auto step = [&](Value* v, Value* reciprocal, Value*& mean, Value*& m2) {
    Value* delta = B.CreateFSub(v, mean);
    mean = vb_.fma(delta, reciprocal, mean);
    m2 = vb_.fma(delta, B.CreateFSub(v, mean), m2);
  };
  auto operand = [&](int c) { return emit_cast(vb_, a.vec ? copy_of(x, c) : x.v[0], x.dtype, a.op->dtype); };
  size_t count = a.first + static_cast<size_t>(a.copies) * 2;
  if (a.vec && vector_.mask && !outer_vector_) {
    Value** rest = carried.data() + count + 1;
    Value *mean = rest[0], *m2 = rest[1], *n = B.CreateFAdd(rest[2], vb_.num(rest[2], 1.0));
    step(operand(0), B.CreateFDiv(vb_.num(n, 1.0), n), mean, m2);
    Value* next[] = {mean, m2, n};
    for (int p = 0; p < 3; ++p) rest[p] = B.CreateSelect(vector_.mask, next[p], rest[p]);
    return;
  }
  Value* n = B.CreateFAdd(carried[count], vb_.num(carried[count], 1.0));
  carried[count] = n;
  Value* reciprocal = B.CreateFDiv(vb_.num(n, 1.0), n);
  if (a.vec) reciprocal = vb_.splat(reciprocal, width_);
  for (int c = 0; c < (a.vec ? vector_.copies : 1); ++c) {
    Value** slot = carried.data() + a.first + static_cast<size_t>(c) * 2;
    step(operand(c), reciprocal, slot[0], slot[1]);
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
      int parts = a.parts, copies = a.copies;
      Values v;
      if (is_welford(a.op->reduce)) {
        // With their counts, and what ran under a mask as one more copy.
        size_t count = a.first + static_cast<size_t>(copies) * 2;
        Value* n = a.vec ? vb_.splat(carried[count], width_) : carried[count];
        for (int c = 0; c < copies; ++c) v.append({carried[a.first + static_cast<size_t>(c) * 2], carried[a.first + static_cast<size_t>(c) * 2 + 1], n});
        if (a.vec) {
          v.append({carried[count + 1], carried[count + 2], carried[count + 3]});
          ++copies;
        }
        parts = 3;
      } else {
        v.append(carried.begin() + a.first, carried.begin() + a.first + static_cast<size_t>(copies) * parts);
      }
      for (int n = copies; n > 1; n = (n + 1) / 2)
        for (int c = 0; c < n / 2; ++c) combine(a, v.data() + c * parts, v.data() + (c + (n + 1) / 2) * parts);
      if (a.vec) {
        for (int n = width_; n > 1; n /= 2) {
          llvm::SmallVector<Value*, 3> low, high;
          llvm::SmallVector<int, 32> first, second;
          for (int l = 0; l < n / 2; ++l) first.push_back(l), second.push_back(l + n / 2);
          for (int p = 0; p < parts; ++p) {
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
