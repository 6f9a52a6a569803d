// Reductions: accumulators carried through the loops as SSA values, several per reduction to hide latency.

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "codegen/cpu/emitter.h"
#include "codegen/llvm/combine.h"
#include "loop/analysis.h"

namespace braze::codegen::cpu {

using loop::ReduceKind;

Type* Emitter::accumulator_type(const Accumulator& a, int part) {
  DType t = a.op->dtype;
  if (is_index(a.op->reduce)) {
    if (part == 1) return B.getInt64Ty();
    t = a.operand;
  }
  return compute_type(vb_, t);
}

Value* Emitter::reduce_identity(const Accumulator& a, int part, Type* type) {
  return ir::reduce_identity(vb_, a.op->reduce, a.operand, part, type);
}

Emitter::Values Emitter::begin_reductions(const loop::Stage& stage) {
  accumulators_.clear();
  Values carried;
  for (const LoopOp& op : stage.ops) {
    if (!loop::accumulates(op.code)) continue;
    Accumulator a;
    a.op = &op;
    a.operand = loop::dtype_of(nest_, op.args[0]).value_or(DType::F32);
    const bool scans = op.code == loop::OpCode::Scan;
    a.vec = width_ > 1 && (outer_vector_ || !scans);
    a.copies = outer_vector_ ? vector_.copies : a.vec ? stage_copies_ : 1;
    a.parts = is_moment(op.reduce) || is_index(op.reduce) ? 2 : 1;
    a.first = carried.size();
    if (is_moment(op.reduce))
      for (const Accumulator& other : accumulators_)
        if (is_moment(other.op->reduce) && other.op->args[0] == op.args[0]) a.first = other.first, a.shared = true;
    for (const Accumulator& other : accumulators_)
      if (op.reduce == ReduceKind::Max && is_exponent(other.op->reduce) && other.op->args[0] == op.args[0])
        a.first = other.first, a.shared = true;
    auto zero = [&](Type* t) { carried.push_back(llvm::Constant::getNullValue(t)); };
    if (is_exponent(op.reduce)) {
      ExpSum s = exp_sum(a);
      for (size_t i = 0; i < s.tops + static_cast<size_t>(a.copies); ++i)
        carried.push_back(
            reduce_identity(a, i < s.tops ? 0 : 1, VectorBuilder::vector(accumulator_type(a, 0), a.vec ? width_ : 1)));
    } else if (!a.shared) {
      for (int c = 0; c < a.copies; ++c)
        for (int p = 0; p < a.parts; ++p)
          carried.push_back(reduce_identity(a, p, VectorBuilder::vector(accumulator_type(a, p), a.vec ? width_ : 1)));
      if (is_moment(op.reduce)) {
        Type *element = accumulator_type(a, 0), *lanes = VectorBuilder::vector(element, a.vec ? width_ : 1);
        Welford w = welford(a);
        for (size_t i = w.count; i < w.end; ++i)
          zero(i == w.count || i == w.total ? element : i == w.started ? B.getInt1Ty() : lanes);
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

// Each lane's with those before it, in as many steps as the number of lanes has bits.
Value* Emitter::scan_lanes(const Accumulator& a, Value* v) {
  Value* nothing = reduce_identity(a, 0, v->getType());
  for (int by = 1; by < width_; by *= 2) {
    llvm::SmallVector<int, 16> take;
    for (int i = 0; i < width_; ++i) take.push_back(i < by ? i : width_ + i - by);
    Value* before = B.CreateShuffleVector(nothing, v, take);
    combine(a, &before, &v);
    v = before;
  }
  return v;
}

// What the scan's value is at the points in flight. Carried: of an outer vector one value a lane, else what the last
// point had.
Lanes Emitter::update_scan(const Accumulator& a, const Lanes& operand, Values& carried) {
  Lanes x = operand, out;
  out.dtype = a.op->dtype;
  out.depth = top();
  const bool along = vectorised() && !outer_vector_;
  out.vec = a.vec || along;
  for (int c = 0; c < (out.vec ? vector_.copies : 1); ++c) {
    Value* v = emit_cast(vb_, out.vec ? copy_of(x, c) : x.v[0], x.dtype, a.op->dtype);
    Value*& carry = carried[a.first + static_cast<size_t>(a.vec ? c : 0)];
    Value* now = carry;
    if (along) {
      if (vector_.mask) v = B.CreateSelect(vector_.mask, v, reduce_identity(a, 0, v->getType()));
      v = scan_lanes(a, v);
      now = vb_.splat(carry, width_);
    }
    combine(a, &now, &v);
    carry = along ? B.CreateExtractElement(now, static_cast<uint64_t>(width_) - 1) : now;
    out.v.push_back(now);
  }
  return out;
}

void Emitter::update_reduction(const Accumulator& a, const Lanes& operand, Values& carried) {
  for (const Accumulator& other : accumulators_) {  // parts that are shared are updated once
    if (&other == &a) break;
    if (other.first == a.first) return;
  }
  if (is_moment(a.op->reduce)) {
    update_welford(a, operand, carried);
    return;
  }
  if (is_exponent(a.op->reduce)) {
    update_exp_sum(a, operand, carried);
    return;
  }
  Lanes x = operand;
  if (const LoopOp* product = product_of(a)) {
    Lanes &left = value(product->args[0]), &right = value(product->args[1]);
    for (int c = 0; c < (a.vec ? vector_.copies : 1); ++c) {
      auto factor = [&](Lanes& l) { return emit_cast(vb_, a.vec ? copy_of(l, c) : l.v[0], l.dtype, DType::F32); };
      Value*& sum = carried[a.first + static_cast<size_t>(c)];
      sum = vb_.fma(factor(left), factor(right), sum);
    }
    return;
  }
  for (int c = 0; c < (a.vec ? vector_.copies : 1); ++c) {
    Value* v = a.vec ? copy_of(x, c) : x.v[0];
    if (!is_index(a.op->reduce)) v = emit_cast(vb_, v, x.dtype, a.op->dtype);
    Value** slot = carried.data() + a.first + static_cast<size_t>(c) * a.parts;
    llvm::SmallVector<Value*, 3> next(slot, slot + a.parts);
    if (is_index(a.op->reduce)) {
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

// A mean and the squares around it are those of sums of distances to a centre near the mean, which the values far from
// zero lose no digits to. At first it is the first value (of rows: a mean of some of the first); after every few steps
// the sums become a mean and squares, joined with those before (Chan's formula), and the mean is the next centre.
// Carried:
//   (sum, sum of squares) of the distances, per copy; the number of steps; of rows, how many values each lane took
//   under a mask the centres (one per copy of columns, one of a row), whether there are any, and relative to each the
//   mean and the squares the number of values in them, and of rows those under a mask
Emitter::Welford Emitter::welford(const Accumulator& a) const {
  Welford w;
  w.rows = a.vec && !outer_vector_;
  w.centres = w.rows ? 1 : static_cast<size_t>(a.copies);
  w.count = a.first + static_cast<size_t>(a.copies) * 2;
  w.rest = w.count + 1;
  w.centre = w.rest + (w.rows ? 1 : 0);
  w.started = w.centre + w.centres;
  w.mean = w.started + 1;
  w.total = w.mean + w.centres * 2;
  w.total_rest = w.total + 1;
  w.end = w.total_rest + (w.rows ? 1 : 0);
  return w;
}

void Emitter::update_welford(const Accumulator& a, Lanes x, Values& carried) {
  Welford w = welford(a);
  Value *started = carried[w.started], *mask = w.rows ? vector_.mask : nullptr;
  int copies = a.vec ? vector_.copies : 1;
  Values v;
  for (int c = 0; c < copies; ++c) v.push_back(emit_cast(vb_, a.vec ? copy_of(x, c) : x.v[0], x.dtype, a.op->dtype));
  if (w.rows) {
    carried[w.centre] = vb_.rarely(B.CreateNot(started), carried[w.centre], [&]() -> Value* {
      if (mask) return B.CreateSelect(mask, v[0], vb_.splat(B.CreateExtractElement(v[0], uint64_t(0)), width_));
      Value *part = vb_.num(v[0], 1.0 / copies), *mean = B.CreateFMul(v[0], part);
      for (int c = 1; c < copies; ++c) mean = vb_.fma(v[static_cast<size_t>(c)], part, mean);
      for (int n = 2; n <= 4 && n <= width_; n *= 2) {
        llvm::SmallVector<int, 16> turned;
        for (int l = 0; l < width_; ++l) turned.push_back((l + width_ / n) % width_);
        Value* half = vb_.num(mean, 0.5);
        mean = vb_.fma(mean, half, B.CreateFMul(B.CreateShuffleVector(mean, turned), half));
      }
      return mean;
    });
  } else {
    for (size_t c = 0; c < v.size(); ++c) carried[w.centre + c] = B.CreateSelect(started, carried[w.centre + c], v[c]);
  }
  carried[w.started] = B.getTrue();
  Value*& count = carried[mask ? w.rest : w.count];
  Value* one = vb_.num(count, 1.0);
  count = B.CreateFAdd(count, mask ? B.CreateSelect(mask, one, vb_.num(one, 0.0)) : one);
  for (size_t c = 0; c < v.size(); ++c) {
    Value** slot = carried.data() + a.first + c * 2;
    Value* d = B.CreateFSub(v[c], carried[w.centre + (w.rows ? 0 : c)]);
    if (mask) d = B.CreateSelect(mask, d, vb_.num(d, 0.0));
    slot[0] = B.CreateFAdd(slot[0], d);
    slot[1] = vb_.fma(d, d, slot[1]);
  }
}

// Of a row, the copies have one maximum for each lane, so that their sums are relative to the same. What was summed up
// is scaled where that moves, which is rare after the first few steps.
Emitter::ExpSum Emitter::exp_sum(const Accumulator& a) const {
  ExpSum s;
  s.tops = outer_vector_ ? static_cast<size_t>(a.copies) : 1;
  s.top = a.first;
  s.sum = s.top + s.tops;
  return s;
}

void Emitter::update_exp_sum(const Accumulator& a, Lanes x, Values& carried) {
  ExpSum s = exp_sum(a);
  size_t copies = a.vec ? static_cast<size_t>(vector_.copies) : 1;
  // Lanes of an outer vector are points of their own; what the idle ones hold is never stored.
  Value* mask = a.vec && !outer_vector_ ? vector_.mask : nullptr;
  Values v, tops;
  for (size_t c = 0; c < copies; ++c) {
    Value* value = emit_cast(vb_, a.vec ? copy_of(x, static_cast<int>(c)) : x.v[0], x.dtype, a.op->dtype);
    v.push_back(mask ? B.CreateSelect(mask, value, vb_.num(value, -INFINITY)) : value);
  }
  for (size_t t = 0; t < s.tops; ++t) tops.push_back(carried[s.top + t]);
  for (size_t c = 0; c < copies; ++c) {
    Value*& top = tops[s.tops > 1 ? c : 0];
    top = emit_max(vb_, top, v[c], true, false);
  }
  Values bases;
  for (size_t t = 0; t < s.tops; ++t) {
    Value *before = carried[s.top + t], *base = ir::exponent_base(vb_, tops[t]);
    Value* same = vb_.rarely(B.CreateFCmpUNE(before, tops[t]), vb_.num(before, 1.0),
                             [&] { return ir::exponential(vb_, before, base); });
    carried[s.top + t] = tops[t];
    bases.push_back(base);
    for (size_t c = 0; c < static_cast<size_t>(a.copies); ++c)
      if (s.tops == 1 || c == t) carried[s.sum + c] = B.CreateFMul(carried[s.sum + c], same);
  }
  for (size_t c = 0; c < copies; ++c)
    carried[s.sum + c] = B.CreateFAdd(carried[s.sum + c], ir::exponential(vb_, v[c], bases[s.tops > 1 ? c : 0]));
}

namespace {

bool is_zero(Value* v) {
  auto* c = llvm::dyn_cast<llvm::Constant>(v);
  return c && c->isNullValue();
}

}  // namespace

// All lanes become one, by halves.
void Emitter::fold_lanes(Values& parts, const std::function<void(Value** into, Value* const* from)>& join) {
  for (unsigned n = VectorBuilder::lanes(parts[0]); n > 1; n /= 2) {
    Values low, high;
    llvm::SmallVector<int, 32> first, second;
    for (unsigned l = 0; l < n / 2; ++l)
      first.push_back(static_cast<int>(l)), second.push_back(static_cast<int>(l + n / 2));
    for (Value* x : parts) {
      if (n == 2) {
        low.push_back(B.CreateExtractElement(x, uint64_t(0)));
        high.push_back(B.CreateExtractElement(x, uint64_t(1)));
      } else {
        low.push_back(B.CreateShuffleVector(x, first));
        high.push_back(B.CreateShuffleVector(x, second));
      }
    }
    join(low.data(), high.data());
    parts = std::move(low);
  }
}

// The sums of distances join the mean and the squares.
void Emitter::fold_welford(const Accumulator& a, Values& v) {
  Welford w = welford(a);
  bool first = is_zero(v[w.total]) && (!w.rows || is_zero(v[w.total_rest]));
  Value *n = v[w.count], *before = v[w.total];  // of every lane, where none took more than another
  if (w.rows) n = B.CreateFMul(n, vb_.num(n, a.copies));
  v[w.total] = B.CreateFAdd(before, n);
  auto wide = [&](Value* x) { return VectorBuilder::is_vector(x) ? x : vb_.splat(x, a.vec ? width_ : 1); };
  if (w.rows && !(is_zero(v[w.rest]) && is_zero(v[w.total_rest]))) {
    n = B.CreateFAdd(wide(n), v[w.rest]);
    before = B.CreateFAdd(wide(before), v[w.total_rest]);
    v[w.total_rest] = B.CreateFAdd(v[w.total_rest], v[w.rest]);
  }
  auto divide = [&](Value* x, Value* count) {
    return B.CreateFDiv(x, B.CreateSelect(B.CreateFCmpOGT(count, vb_.num(count, 0.0)), count, vb_.num(count, 1.0)));
  };
  Value *part = wide(divide(vb_.num(n, 1.0), n)), *share = nullptr, *weight = nullptr;
  if (!first) {
    Value* s = divide(n, B.CreateFAdd(before, n));
    share = wide(s);
    weight = wide(B.CreateFMul(before, s));
  }
  for (size_t i = 0; i < w.centres; ++i) {
    Value *sum = v[a.first + 2 * i], *squares = v[a.first + 2 * i + 1];
    for (int c = 1; w.rows && c < a.copies; ++c) {
      sum = B.CreateFAdd(sum, v[a.first + 2 * static_cast<size_t>(c)]);
      squares = B.CreateFAdd(squares, v[a.first + 2 * static_cast<size_t>(c) + 1]);
    }
    Value *&mean = v[w.mean + 2 * i], *&around = v[w.mean + 2 * i + 1];
    Value* own = B.CreateFMul(sum, part);
    squares = vb_.at_least(vb_.num(squares, 0.0), vb_.fma(B.CreateFNeg(sum), own, squares));
    if (!first) {
      Value* delta = B.CreateFSub(own, mean);
      // The weight first: it may be 0 where the square is infinite.
      squares = B.CreateFAdd(around, vb_.fma(B.CreateFMul(delta, weight), delta, squares));
      own = vb_.fma(delta, share, mean);
    }
    around = squares;
    mean = own;
  }
}

// The mean becomes the centre; what rounding takes from it stays.
void Emitter::move_centres(const Accumulator& a, Values& v) {
  Welford w = welford(a);
  for (size_t i = 0; i < w.centres; ++i) {
    Value *&centre = v[w.centre + i], *&mean = v[w.mean + 2 * i], *moved = B.CreateFAdd(centre, mean);
    mean = B.CreateFSub(mean, B.CreateFSub(moved, centre));
    centre = moved;
  }
}

// A row's mean and squares from those of the lanes.
std::pair<Value*, Value*> Emitter::join_lanes(const Accumulator& a, const Values& v) {
  Welford w = welford(a);
  auto total = [&](Value* x) {
    Values parts{x};
    fold_lanes(parts, [&](Value** into, Value* const* from) { into[0] = B.CreateFAdd(into[0], from[0]); });
    return parts[0];
  };
  // Relative to the first lane's, unless the lanes are as far from each other as from zero.
  Value *x = B.CreateExtractElement(v[w.centre], uint64_t(0)), *y = B.CreateExtractElement(v[w.centre], uint64_t(1));
  Value* far = B.CreateFCmpOGT(vb_.fabs(x), B.CreateFMul(vb_.fabs(B.CreateFSub(x, y)), vb_.num(x, 4.0)));
  Value* base = B.CreateSelect(far, x, vb_.num(x, 0.0));
  Value* means = B.CreateFAdd(B.CreateFSub(v[w.centre], vb_.splat(base, width_)), v[w.mean]);
  Value *n = vb_.splat(v[w.total], width_), *mean;
  if (is_zero(v[w.total_rest])) {
    mean = B.CreateFMul(total(means), vb_.num(x, 1.0 / width_));
  } else {
    n = B.CreateFAdd(n, v[w.total_rest]);
    Value* all = total(n);
    mean = B.CreateFDiv(total(B.CreateFMul(means, n)),
                        B.CreateSelect(B.CreateFCmpOGT(all, vb_.num(all, 0.0)), all, vb_.num(all, 1.0)));
  }
  Value* off = B.CreateFSub(means, vb_.splat(mean, width_));
  return {B.CreateFAdd(base, mean), total(vb_.fma(B.CreateFMul(off, n), off, v[w.mean + 1]))};
}

void Emitter::finish_reductions(const loop::Stage& stage, const Values& carried) {
  for (const Accumulator& a : accumulators_) {
    if (a.op->code == loop::OpCode::Scan) continue;
    int part = a.op->reduce == ReduceKind::WelfordM2 || is_index(a.op->reduce) ? 1 : 0;
    Lanes out;
    out.dtype = a.op->dtype;
    out.depth = top();
    auto at = [&](int c) { return carried.begin() + static_cast<long>(a.first) + static_cast<long>(c) * a.parts; };
    auto cast = [&](Value* v) { return is_index(a.op->reduce) ? emit_cast(vb_, v, DType::I64, a.op->dtype) : v; };
    if (is_moment(a.op->reduce)) {
      Values v(carried);
      Welford w = welford(a);
      if (!is_zero(v[w.count]) || (w.rows && !is_zero(v[w.rest]))) fold_welford(a, v);
      if (w.rows) {
        auto [mean, squares] = join_lanes(a, v);
        out.v.push_back(part ? squares : mean);
      } else {
        out.vec = outer_vector_;
        for (size_t c = 0; c < w.centres; ++c)
          out.v.push_back(part ? v[w.mean + 2 * c + 1] : B.CreateFAdd(v[w.centre + c], v[w.mean + 2 * c]));
      }
    } else if (is_exponent(a.op->reduce) || (a.shared && a.op->reduce == ReduceKind::Max)) {
      const Accumulator& of = *std::find_if(accumulators_.begin(), accumulators_.end(), [&](const Accumulator& other) {
        return is_exponent(other.op->reduce) && other.first == a.first;
      });
      ExpSum s = exp_sum(of);
      auto result = [&](Value* top, Value* sum) {
        return is_exponent(a.op->reduce) ? ir::exponent_sum(vb_, top, sum) : top;
      };
      out.vec = outer_vector_;
      if (outer_vector_) {
        for (size_t c = 0; c < s.tops; ++c) out.v.push_back(result(carried[s.top + c], carried[s.sum + c]));
      } else {
        Values parts{carried[s.top], carried[s.sum]};
        for (size_t c = 1; c < static_cast<size_t>(of.copies); ++c)
          parts[1] = B.CreateFAdd(parts[1], carried[s.sum + c]);
        if (of.vec) fold_lanes(parts, [&](Value** into, Value* const* from) { combine(of, into, from); });
        out.v.push_back(result(parts[0], parts[1]));
      }
    } else if (outer_vector_) {
      out.vec = true;
      for (int c = 0; c < a.copies; ++c) out.v.push_back(cast(at(c)[part]));
    } else {
      llvm::SmallVector<Values, 4> copies;
      for (int c = 0; c < a.copies; ++c) copies.emplace_back(at(c), at(c) + a.parts);
      for (size_t n = copies.size(); n > 1; n = (n + 1) / 2)
        for (size_t c = 0; c < n / 2; ++c) combine(a, copies[c].data(), copies[c + (n + 1) / 2].data());
      if (a.vec) fold_lanes(copies[0], [&](Value** into, Value* const* from) { combine(a, into, from); });
      out.v.push_back(cast(copies[0][static_cast<size_t>(part)]));
    }
    value(a.op->result) = std::move(out);
  }
}

bool Emitter::runs(const Accumulator& a) const {
  if (a.op->code == loop::OpCode::Scan) return false;
  return a.op->reduce == ReduceKind::Sum || is_exponent(a.op->reduce) || (is_moment(a.op->reduce) && !a.shared);
}

Emitter::Values Emitter::restart(const Values& carried) {
  Values out = carried;
  for (const Accumulator& a : accumulators_) {
    if (!runs(a)) continue;
    size_t begin = is_exponent(a.op->reduce) ? exp_sum(a).sum : a.first;
    size_t end = is_moment(a.op->reduce) ? welford(a).centre : begin + static_cast<size_t>(a.copies);
    for (size_t i = begin; i < end; ++i) out[i] = llvm::Constant::getNullValue(carried[i]->getType());
  }
  return out;
}

Emitter::Values Emitter::resume(const Values& before, const Values& after) {
  Values out = after;
  for (const Accumulator& a : accumulators_) {
    if (!runs(a)) continue;
    if (is_moment(a.op->reduce)) {
      fold_welford(a, out);
      move_centres(a, out);
      for (size_t i = a.first; i < welford(a).centre; ++i) out[i] = before[i];
      continue;
    }
    if (is_exponent(a.op->reduce)) {
      ExpSum s = exp_sum(a);
      for (size_t c = 0; c < static_cast<size_t>(a.copies); ++c) {
        size_t t = s.top + (s.tops > 1 ? c : 0);
        Value* share = ir::exponential(vb_, before[t], ir::exponent_base(vb_, after[t]));
        out[s.sum + c] = vb_.fma(before[s.sum + c], share, after[s.sum + c]);
      }
      continue;
    }
    for (int c = 0; c < a.copies; ++c) {
      Value* sum = before[a.first + c];
      combine(a, &sum, &after[a.first + c]);
      out[a.first + c] = sum;
    }
  }
  return out;
}

}  // namespace braze::codegen::cpu
