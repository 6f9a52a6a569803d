// Reductions: each thread combines its own elements, then the threads that share the outer point combine theirs: by
// shuffles within a warp, through shared memory between warps and between rows of threads.
#include <cmath>
#include <limits>

#include "base/check.h"
#include "codegen/llvm/combine.h"
#include "codegen/nvptx/emitter.h"
#include "loop/analysis.h"
#include "schedule/index.h"

namespace braze::codegen::nvptx {

using loop::ReduceKind;

Type* Emitter::part_type(const Accumulator& a, int part) {
  if (is_index(a.op->reduce)) return part == 1 ? (a.wide ? vb_.i64() : vb_.i32()) : ir::compute_type(vb_, a.operand);
  return ir::compute_type(vb_, a.op->dtype);
}

Emitter::Values Emitter::begin_reductions(const loop::Stage& stage) {
  accumulators_.clear();
  Values carried;
  for (const LoopOp& op : stage.ops) {
    if (op.code != loop::OpCode::Reduce) continue;
    Accumulator a;
    a.op = &op;
    a.operand = loop::dtype_of(nest_, op.args[0]).value_or(a.operand);
    a.parts = is_moment(op.reduce) ? 4 : is_index(op.reduce) || is_exponent(op.reduce) ? 2 : 1;
    a.wide = arena_.range(schedule::volume(arena_, stage.axes)).hi > INT32_MAX;
    a.first = carried.size();
    if (is_moment(op.reduce))
      for (const Accumulator& other : accumulators_)
        if (is_moment(other.op->reduce) && other.op->args[0] == op.args[0]) a.first = other.first, a.shared = true;
    for (const Accumulator& other : accumulators_)
      if (op.reduce == ReduceKind::Max && is_exponent(other.op->reduce) && other.op->args[0] == op.args[0])
        a.first = other.first, a.parts = other.parts, a.shared = true;
    if (!a.shared)
      for (int l = 0; l < outer_lanes(); ++l)
        for (int p = 0; p < a.parts; ++p)
          carried.push_back(ir::reduce_identity(vb_, op.reduce, a.operand, p, part_type(a, p)));
    accumulators_.push_back(a);
  }
  return carried;
}

void Emitter::combine(const Accumulator& a, Value** into, Value** from) {
  if (is_moment(a.op->reduce)) ir::align_welford(vb_, into, from);
  ir::reduce_combine(vb_, a.op->reduce, a.operand, into, from);
}

void Emitter::update_reduction(Accumulator& a, const Lanes& x, Values& carried) {
  if (a.shared) return;
  bool columns = shape_.way == Shape::Way::Columns;
  if (is_moment(a.op->reduce) && !columns) {
    update_welford(a, x, carried);
    return;
  }
  if (is_exponent(a.op->reduce) && !columns) {
    update_exp_sum(a, x, carried);
    return;
  }
  ReduceKind kind = a.op->reduce;
  int elements = flight_.elements();
  auto parts_of = [&](int e) {
    Values v;
    Value* value = x.at(e);
    v.push_back(is_index(kind) ? value : ir::emit_cast(vb_, value, x.dtype, a.op->dtype));
    if (is_index(kind)) {
      Value* at = stage_positions_[columns ? 0 : static_cast<size_t>(e / flight_.lanes)];
      at = B.CreateSExtOrTrunc(at, part_type(a, 1));
      if (!columns && e % flight_.lanes) at = B.CreateAdd(at, vb_.integer(at, e % flight_.lanes));
      v.push_back(at);
    }
    if (is_exponent(kind)) v.push_back(vb_.num(v[0], 1.0));
    if (is_moment(kind)) {
      Value *zero = vb_.num(v[0], 0.0), *shift = v[0];
      v = {zero, zero, vb_.num(shift, 1.0), shift};
    }
    return v;
  };
  if (columns) {  // every element is an outer point of its own
    for (int e = 0; e < elements; ++e) {
      Values v = parts_of(e);
      combine(a, carried.data() + a.first + static_cast<size_t>(e * a.parts), v.data());
    }
    return;
  }
  std::vector<Values> all;
  for (int e = 0; e < elements; ++e) {
    Values v = parts_of(e);
    if (Value* active = flight_.active_at(e / flight_.lanes))
      for (int p = 0; p < a.parts; ++p)
        v[static_cast<size_t>(p)] = B.CreateSelect(active, v[static_cast<size_t>(p)],
                                                   ir::reduce_identity(vb_, kind, a.operand, p, part_type(a, p)));
    all.push_back(std::move(v));
  }
  // As a tree: short chains, and rounding errors that grow with the logarithm. The earlier element first, for ties.
  for (size_t n = 1; n < all.size(); n *= 2)
    for (size_t i = 0; i + n < all.size(); i += 2 * n)
      ir::reduce_combine(vb_, kind, a.operand, all[i].data(), all[i + n].data(), /*later=*/true);
  ir::reduce_combine(vb_, kind, a.operand, carried.data() + a.first, all[0].data());
}

// The elements' own mean and sum of squared deviations, then combined with what was there: one division per turn. All
// of the distances to the thread's first element.
void Emitter::update_welford(Accumulator& a, const Lanes& x, Values& carried) {
  int elements = flight_.elements();
  Values v;
  Type* type = part_type(a, 0);
  Value *zero = vb_.num(type, 0.0), *count = nullptr;
  int certain = 0;
  for (int c = 0; c < flight_.copies; ++c) {
    if (Value* active = flight_.active_at(c)) {
      Value* n = B.CreateSelect(active, vb_.num(type, flight_.lanes), zero);
      count = count ? B.CreateFAdd(count, n) : n;
    } else {
      certain += flight_.lanes;
    }
  }
  Value* n = vb_.num(type, certain);
  if (count) n = certain ? B.CreateFAdd(count, n) : count;
  auto tree = [&](Values terms) {
    for (size_t step = 1; step < terms.size(); step *= 2)
      for (size_t i = 0; i + step < terms.size(); i += 2 * step) terms[i] = B.CreateFAdd(terms[i], terms[i + step]);
    return terms[0];
  };
  Values kept;
  Value** into = carried.data() + a.first;
  Value* shift = nullptr;
  for (int e = 0; e < elements; ++e) {
    Value* value = ir::emit_cast(vb_, x.at(e), x.dtype, a.op->dtype);
    Value* active = flight_.active_at(e / flight_.lanes);
    if (!shift) {
      Value* first = active ? B.CreateSelect(active, value, zero) : value;
      shift = B.CreateSelect(B.CreateFCmpOGT(into[2], zero), into[3], first);
    }
    v.push_back(B.CreateFSub(value, shift));
    kept.push_back(active ? B.CreateSelect(active, v.back(), zero) : v.back());
  }
  Value* divisor = certain ? n : B.CreateSelect(B.CreateFCmpOGT(n, zero), n, vb_.num(type, 1.0));
  Value* mean = B.CreateFMul(tree(kept), B.CreateFDiv(vb_.num(type, 1.0), divisor));
  Values squares;
  for (int e = 0; e < elements; ++e) {
    Value* d = B.CreateFSub(v[static_cast<size_t>(e)], mean);
    d = B.CreateFMul(d, d);
    Value* active = flight_.active_at(e / flight_.lanes);
    squares.push_back(active ? B.CreateSelect(active, d, zero) : d);
  }
  Value* own[] = {mean, tree(squares), n};
  ir::reduce_combine(vb_, a.op->reduce, a.operand, into, own);
  into[3] = shift;
}

// One maximum of all elements in flight and of those before, so that what was summed up is scaled once per turn.
void Emitter::update_exp_sum(Accumulator& a, const Lanes& x, Values& carried) {
  Value** into = carried.data() + a.first;
  Values v;
  for (int e = 0; e < flight_.elements(); ++e) {
    Value* value = ir::emit_cast(vb_, x.at(e), x.dtype, a.op->dtype);
    Value* active = flight_.active_at(e / flight_.lanes);
    v.push_back(active ? B.CreateSelect(active, value, vb_.num(value, -INFINITY)) : value);
  }
  auto tree = [&](Values terms, auto join) {
    for (size_t step = 1; step < terms.size(); step *= 2)
      for (size_t i = 0; i + step < terms.size(); i += 2 * step) terms[i] = join(terms[i], terms[i + step]);
    return terms[0];
  };
  auto larger = [&](Value* p, Value* q) { return ir::emit_max(vb_, p, q, true, false); };
  Value* top = larger(into[0], tree(v, larger));
  Value* base = ir::exponent_base(vb_, top);
  Value* before = ir::exponential(vb_, into[0], base);
  for (Value*& value : v) value = ir::exponential(vb_, value, base);
  into[0] = top;
  into[1] = vb_.fma(into[1], before, tree(v, [&](Value* p, Value* q) { return B.CreateFAdd(p, q); }));
}

Value* Emitter::shuffle(Value* v, int offset) {
  Type* type = v->getType();
  unsigned bits = type->getScalarSizeInBits();
  auto move = [&](Value* word) {
    return intrinsic(llvm::Intrinsic::nvvm_shfl_sync_bfly_i32,
                     {mates_, word, B.getInt32(static_cast<uint32_t>(offset)), B.getInt32(31)});
  };
  if (bits == 64) {
    Value* whole = B.CreateBitCast(v, vb_.i64());
    Value* low = B.CreateZExt(move(B.CreateTrunc(whole, vb_.i32())), vb_.i64());
    Value* high = B.CreateZExt(move(B.CreateTrunc(B.CreateLShr(whole, B.getInt64(32)), vb_.i32())), vb_.i64());
    return B.CreateBitCast(B.CreateOr(low, B.CreateShl(high, B.getInt64(32))), type);
  }
  if (bits == 32) return B.CreateBitCast(move(B.CreateBitCast(v, vb_.i32())), type);
  return B.CreateTrunc(move(B.CreateZExt(v, vb_.i32())), type);
}

void Emitter::combine_group(Values& carried) {
  int group = shape_.group, in_warp = std::min(group, 32);
  auto rounds = [&](int width) {
    for (Accumulator& a : accumulators_) {
      if (a.shared) continue;
      for (int offset = width / 2; offset > 0; offset /= 2) {
        Values other;
        for (int p = 0; p < a.parts; ++p) other.push_back(shuffle(carried[a.first + static_cast<size_t>(p)], offset));
        combine(a, carried.data() + a.first, other.data());
      }
    }
  };
  rounds(in_warp);
  int warps = group / 32;
  if (warps <= 1) return;
  Value* lane = B.CreateAnd(thread_, B.getInt32(31));
  std::vector<Value*> arrays;
  for (Value* v : carried) arrays.push_back(shared_array(memory_type(v->getType()), static_cast<uint64_t>(warps)));
  if_then(B.CreateICmpEQ(lane, B.getInt32(0)), [&] {
    Value* warp = B.CreateLShr(thread_, B.getInt32(5));
    for (size_t i = 0; i < carried.size(); ++i) {
      Type* t = memory_type(carried[i]->getType());
      B.CreateStore(B.CreateZExtOrBitCast(carried[i], t), B.CreateInBoundsGEP(t, arrays[i], warp));
    }
  });
  intrinsic(llvm::Intrinsic::nvvm_barrier0);
  written_.clear();
  Value* from = B.CreateAnd(lane, B.getInt32(static_cast<uint32_t>(warps - 1)));
  for (size_t i = 0; i < carried.size(); ++i) {
    Type *t = carried[i]->getType(), *m = memory_type(t);
    Value* v = B.CreateLoad(m, B.CreateInBoundsGEP(m, arrays[i], from));
    carried[i] = t == m ? v : B.CreateTrunc(v, t);
  }
  rounds(warps);
}

// An array of an element for each thread of each type. Once most of the block's memory is given out, the rest is given
// again and again, behind barriers.
std::vector<Value*> Emitter::partial_arrays(const std::vector<Type*>& types) {
  const auto threads = static_cast<uint64_t>(shape_.threads);
  uint64_t bytes = 0;
  for (Type* t : types) bytes += bytes_of(t, threads);
  std::vector<Value*> out;
  if (shared_bytes_ + bytes <= most_shared() - most_partials()) {
    for (Type* t : types) out.push_back(shared_array(t, threads));
    return out;
  }
  if (partials_)
    intrinsic(llvm::Intrinsic::nvvm_barrier0);
  else
    partials_ = shared_array(vb_.i8(), most_partials());
  uint64_t at = 0;
  for (Type* t : types) {
    out.push_back(B.CreateInBoundsGEP(vb_.i8(), partials_, B.getInt32(static_cast<uint32_t>(at))));
    at += bytes_of(t, threads);
  }
  BRAZE_CHECK(at <= most_partials(), "the partial results of one reduction fit a block's memory");
  return out;
}

void Emitter::combine_columns(Values& carried) {
  if (workers_ <= 1) return;
  // As many reductions at a time as fit.
  std::vector<const Accumulator*> those;
  uint64_t bytes = 0;
  for (const Accumulator& a : accumulators_) {
    if (a.shared) continue;
    uint64_t own = 0;
    for (int i = 0; i < a.parts * outer_lanes(); ++i)
      own += bytes_of(memory_type(carried[a.first + static_cast<size_t>(i)]->getType()),
                      static_cast<uint64_t>(shape_.threads));
    if (!those.empty() && bytes + own > most_partials()) {
      combine_columns(carried, those);
      those.clear();
      bytes = 0;
    }
    those.push_back(&a);
    bytes += own;
  }
  if (!those.empty()) combine_columns(carried, those);
}

void Emitter::combine_columns(Values& carried, llvm::ArrayRef<const Accumulator*> those) {
  Value* x = B.CreateURem(thread_, B.getInt32(static_cast<uint32_t>(shape_.group)));
  std::vector<size_t> places;  // in `carried`
  std::vector<Type*> types;
  for (const Accumulator* a : those)
    for (int i = 0; i < a->parts * outer_lanes(); ++i) {
      places.push_back(a->first + static_cast<size_t>(i));
      types.push_back(memory_type(carried[places.back()]->getType()));
    }
  const std::vector<Value*> arrays = partial_arrays(types);
  Value* slot = B.CreateAdd(B.CreateMul(rank_, B.getInt32(static_cast<uint32_t>(shape_.group))), x);
  for (size_t i = 0; i < places.size(); ++i)
    B.CreateStore(B.CreateZExtOrBitCast(carried[places[i]], types[i]), B.CreateInBoundsGEP(types[i], arrays[i], slot));
  intrinsic(llvm::Intrinsic::nvvm_barrier0);
  written_.clear();
  // All rows of threads in order, by every one of them: each then has the result.
  auto read = [&](size_t i, Value* row) -> Value* {
    Type* t = carried[places[i]]->getType();
    Value* at = B.CreateAdd(B.CreateMul(row, B.getInt32(static_cast<uint32_t>(shape_.group))), x);
    Value* v = B.CreateLoad(types[i], B.CreateInBoundsGEP(types[i], arrays[i], at));
    return t == types[i] ? v : B.CreateTrunc(v, t);
  };
  Values sums;
  for (size_t i = 0; i < places.size(); ++i) sums.push_back(read(i, B.getInt32(0)));
  sums = loop(B.getInt32(1), B.getInt32(static_cast<uint32_t>(workers_)), B.getInt32(1), sums,
              [&](Value* row, Values current) {
                size_t first = 0;
                for (const Accumulator* a : those)
                  for (int l = 0; l < outer_lanes(); ++l) {
                    Values other;
                    for (int p = 0; p < a->parts; ++p) other.push_back(read(first + static_cast<size_t>(p), row));
                    combine(*a, current.data() + first, other.data());
                    first += static_cast<size_t>(a->parts);
                  }
                return current;
              });
  for (size_t i = 0; i < places.size(); ++i) carried[places[i]] = sums[i];
}

void Emitter::finish_reductions(Values carried) {
  if (accumulators_.empty()) return;
  if (shape_.way == Shape::Way::Columns)
    combine_columns(carried);
  else
    combine_group(carried);
  for (const Accumulator& a : accumulators_) {
    int part = a.op->reduce == ReduceKind::WelfordM2 || is_index(a.op->reduce) ? 1 : 0;
    Lanes out;
    out.dtype = a.op->dtype;
    for (int l = 0; l < outer_lanes(); ++l) {
      size_t first = a.first + static_cast<size_t>(l * a.parts);
      Value* v = carried[first + static_cast<size_t>(part)];
      if (is_exponent(a.op->reduce)) v = ir::exponent_sum(vb_, v, carried[first + 1]);
      if (a.op->reduce == ReduceKind::WelfordMean) v = B.CreateFAdd(v, carried[first + 3]);
      out.v.push_back(is_index(a.op->reduce) ? ir::emit_cast(vb_, v, a.wide ? DType::I64 : DType::I32, a.op->dtype)
                                             : v);
    }
    values_[a.op->result.index] = std::move(out);
  }
}

}  // namespace braze::codegen::nvptx
