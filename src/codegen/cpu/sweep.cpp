// Sweeps: columns are reduced a few rows at a time, from one end of a block of columns to the other.
//
// A group of columns has its accumulators in registers, and would go down all rows: a few cache lines of each, on a
// page of its own. Memory is read as fast as it can be in long runs, several at a time that are some pages apart. So
// the accumulators of a block of columns are kept in memory that stays in the nearest cache, a group is one cache line,
// and each group takes kSweepRows rows at its turn, kSweepStride apart.
#include <algorithm>
#include <span>

#include "codegen/cpu/emitter.h"
#include "loop/analysis.h"
#include "schedule/index.h"

namespace braze::codegen::cpu {

using loop::OpCode;
using schedule::volume;

namespace {

constexpr int64_t kLeastSwept = 1 << 19;  // elements: fewer are in a cache, or are few pages
constexpr int kMostSwept = 4;             // reductions, whose accumulators are to stay in the nearest cache

}  // namespace

bool Emitter::only_reduces() const {
  int sums = 0;
  std::vector<char> of_stage(static_cast<size_t>(nest_.values), 0);
  for (const LoopOp& op : nest_.stages[0].ops) {
    if (op.code == OpCode::Scan || op.code == OpCode::Store || op.code == OpCode::Indirect) return false;
    if (op.code == OpCode::Load && program_.buffers[op.buffer].kind == loop::BufferKind::Local) return false;
    if (op.code == OpCode::Reduce) {
      if (is_moment(op.reduce) || is_exponent(op.reduce) || ++sums > kMostSwept) return false;
    } else if (op.result.valid()) {
      of_stage[op.result.index] = 1;
    }
  }
  for (size_t s = 1; s < nest_.stages.size(); ++s) {
    if (!nest_.stages[s].axes.empty()) return false;
    for (const LoopOp& op : nest_.stages[s].ops)
      for (loop::ValId v : op.args)
        if (v.valid() && of_stage[v.index]) return false;
  }
  return sums > 0;
}

// Whether the first stage reduces rows into results of columns alone, and what follows takes nothing else from it.
bool Emitter::may_sweep() const {
  if (!vb_.target.sweeps_columns) return false;
  const loop::Stage& stage = nest_.stages[0];
  if (stage.axes.size() != 1) return false;
  auto rows = arena_.as_const(stage.axes[0].extent), columns = arena_.as_const(nest_.outer.back().extent);
  if (rows && *rows < 2 * kSweepRows) return false;
  if (columns && *columns <= static_cast<int64_t>(width_) * copies_) return false;
  auto points = arena_.as_const(volume(arena_, nest_.outer));
  if (rows && points && *rows * *points < kLeastSwept) return false;
  return only_reduces();
}

// Vectors that are a cache line of what is read in the smallest elements.
int Emitter::vectors_of_line() const {
  constexpr int64_t kLine = 64;
  int64_t least = 8;
  for (const LoopOp& op : nest_.stages[0].ops)
    if (op.code == OpCode::Load) least = std::min<int64_t>(least, size_of(program_.buffers[op.buffer].dtype));
  return static_cast<int>(std::max<int64_t>(1, kLine / (least * width_)));
}

// Runs of a page, or of parts of it where the threads would have too few blocks to share.
int64_t Emitter::sweep_columns() const {
  constexpr int64_t kMost = 1024, kFewest = 256, kEnough = 8;
  auto others = arena_.as_const(volume(arena_, std::span(nest_.outer).first(nest_.outer.size() - 1))),
       known = arena_.as_const(nest_.outer.back().extent);
  auto blocks = [&](int64_t most) { return std::max<int64_t>(1, (known.value_or(most) + most - 1) / most); };
  int64_t most = kMost;
  while (most > kFewest && others.value_or(1) * blocks(most) < kEnough) most /= 2;
  return (known.value_or(most) + blocks(most) - 1) / blocks(most);
}

// A vector of memory for each vector of a block's columns, of each part of each accumulator.
class Emitter::Kept {
 public:
  Kept(Emitter& e, Value* begin) : e_(e), begin_(begin) {}

  Values load() {
    return each([&](Value* p, Value*, Type* type) { return e_.B.CreateLoad(type, p); });
  }
  void store(const Values& values) {
    each([&](Value* p, Value* v, Type*) { return e_.B.CreateStore(v, p), v; }, &values);
  }

 private:
  // Of the group of columns at hand, in the order of the values that its loop over rows carries.
  Values each(const std::function<Value*(Value* place, Value* value, Type* type)>& visit,
              const Values* values = nullptr) {
    auto& B = e_.B;
    Value* first = B.CreateSub(e_.vector_.iv, begin_, "", true, true);
    first = B.CreateUDiv(first, B.getInt64(static_cast<uint64_t>(e_.width_)), "", true);
    Values out;
    size_t array = 0;
    for (const Accumulator& a : e_.accumulators_)
      for (int c = 0; c < a.copies; ++c)
        for (int p = 0; p < a.parts; ++p) {
          Type* type = VectorBuilder::vector(e_.accumulator_type(a, p), e_.width_);
          if (c == 0 && array + static_cast<size_t>(p) == arrays_.size()) arrays_.push_back(allocate(type));
          Value* at = B.CreateAdd(first, B.getInt64(static_cast<uint64_t>(c)), "", true, true);
          Value* place = B.CreateInBoundsGEP(type, arrays_[array + static_cast<size_t>(p)], at);
          out.push_back(visit(place, values ? (*values)[out.size()] : nullptr, type));
          if (c + 1 == a.copies && p + 1 == a.parts) array += static_cast<size_t>(a.parts);
        }
    return out;
  }

  Value* allocate(Type* type) {
    llvm::IRBuilderBase::InsertPointGuard guard(e_.B);
    e_.B.SetInsertPoint(e_.entry_, e_.entry_->begin());
    auto* a = e_.B.CreateAlloca(llvm::ArrayType::get(type, static_cast<uint64_t>(e_.block_ / e_.width_)));
    a->setAlignment(llvm::Align(64));
    return a;
  }

  Emitter& e_;
  Value* begin_;
  Values arrays_;
};

void Emitter::run_sweep(Value* begin, Value* end) {
  const loop::Stage& stage = nest_.stages[0];
  const loop::Axis& axis = stage.axes[0];
  stage_ = &stage;
  Value *zero = B.getInt64(0), *rows = emit(axis.extent);
  auto known = arena_.as_const(axis.extent);
  Kept all(*this, begin), run(*this, begin);
  auto each_group = [&](const std::function<void(Values)>& visit) {
    run_columns(begin, end, block_length_, [&] { visit(begin_reductions(stage)); });
  };
  auto take = [&](Kept& kept, Value* from, Value* to) {  // at most kSweepRows * kSweepStride rows
    Value *stride = B.getInt64(kSweepStride), *turns = B.CreateSub(to, from);
    turns = B.CreateSelect(B.CreateICmpSLT(turns, stride), turns, stride);
    loop(zero, turns, 1, true, {}, [&](Value* turn, const Values&) {
      Value* first = B.CreateAdd(from, turn, "", true, true);
      each_group([&](const Values&) {
        kept.store(loop(first, to, kSweepStride, true, kept.load(), [&](Value* iv, Values carried) {
          bind(axis.var, iv, top());
          run_ops(stage, &carried);
          return carried;
        }));
      });
      return Values();
    });
  };
  each_group([&](const Values& identities) { all.store(identities); });
  const bool sums =
      std::ranges::any_of(accumulators_, [&](const Accumulator& a) { return runs(a) && is_floating(a.op->dtype); });
  // Long sums in two levels, as run_axis takes them.
  constexpr int64_t kRows = kSweepRows * kSweepStride;
  loop(zero, rows, kRows, known && *known > 0, {}, [&](Value* first, const Values&) {
    Value* last = after(first, kRows);
    if (!(known && *known % kRows == 0)) last = B.CreateSelect(B.CreateICmpSLT(last, rows), last, rows);
    if (sums) {
      each_group([&](const Values&) { run.store(restart(all.load())); });
      take(run, first, last);
      each_group([&](const Values&) { all.store(resume(all.load(), run.load())); });
    } else {
      take(all, first, last);
    }
    return Values();
  });
  run_columns(begin, end, block_length_, [&] {
    begin_reductions(stage);
    finish_reductions(stage, all.load());
    for (size_t s = 1; s < nest_.stages.size(); ++s) run_stage(nest_.stages[s]);
  });
}

}  // namespace braze::codegen::cpu
