#include "codegen/cpu/emitter.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "codegen/llvm/math.h"
#include "loop/analysis.h"
#include "schedule/mapping.h"

namespace braze::codegen::cpu {

using loop::Mapping;
using loop::OpCode;

Emitter::Emitter(const Program& program, const Nest& nest, const Signature& signature,
                 std::unique_ptr<CpuBuilder> builder)
    : program_(program),
      nest_(nest),
      signature_(signature),
      arena_(*program.arena),
      builder_(std::move(builder)),
      vb_(*builder_),
      B(vb_.B),
      values_(nest.values) {
  choose_shape();
}

int64_t Emitter::lane_bytes(DType dtype) { return dtype == DType::F64 || dtype == DType::I64 ? 8 : 4; }

int Emitter::body_cost(const loop::Stage& stage) const {
  int cost = 0;
  for (const LoopOp& op : stage.ops) {
    const bool narrows = op.code == OpCode::Cast && (op.dtype == DType::BF16 || float8(op.dtype));
    cost += narrows ? (float8(op.dtype) ? 14 : 8) : loop::op_row(op.code).instructions;
    if (op.code == OpCode::Store && program_.buffers[op.buffer].dtype == DType::BF16) cost += 8;
  }
  return cost;
}

// Of vectors in flight, those that a row fills, without a remainder that one vector would not leave; `keeps_many`: a
// remainder is little beside many of them.
int Emitter::fewer_copies(int copies, int64_t extent, bool keeps_many) const {
  constexpr int64_t kMany = 8;
  auto group = [&] { return static_cast<int64_t>(copies) * width_; };
  while (copies > 1 && extent < group()) copies /= 2;
  if (extent % width_ == 0)
    while (copies > 1 && extent % group() && !(keeps_many && extent >= kMany * group())) copies /= 2;
  return copies;
}

// Vectors in flight: enough to hide latency where the body is small. CPUs without AVX-512 look ahead less far, mostly:
// two functions in turns (codegen/llvm/interleave.h) take a fifth less time there than one after the other.
int Emitter::choose_copies(int cost, int accumulators, std::optional<int64_t> extent) const {
  int copies = cost <= 10 ? 4 : cost <= (vb_.target.vector_bits < 512 ? 60 : 26) ? 2 : 1;
  if (accumulators) copies = cost <= 16 ? 4 : cost <= 40 ? 2 : 1;
  return extent ? fewer_copies(copies, *extent, accumulators > 0) : copies;
}

void Emitter::choose_shape() {
  bool narrow = false, wide = false;
  for (const loop::Stage& s : nest_.stages)
    for (const LoopOp& op : s.ops) {
      if (op.code == OpCode::Index || op.code == OpCode::Indirect) continue;
      (op.dtype == DType::F64 || op.dtype == DType::I64 ? wide : narrow) |= op.dtype != DType::Bool;
    }
  int full = vb_.target.lanes(wide && !narrow ? 8 : 4);
  Mapping::Vector way = nest_.mapping.vector;
  if (way == Mapping::Vector::Outer && nest_.outer.empty()) way = Mapping::Vector::None;
  if (way == Mapping::Vector::None) return;
  int cost = 0, accumulators = 0;
  for (const loop::Stage& s : nest_.stages) {
    cost += body_cost(s);
    if (s.axes.empty()) continue;
    for (const LoopOp& op : s.ops)
      if (op.code == OpCode::Reduce) accumulators += is_moment(op.reduce) || is_exponent(op.reduce) ? 2 : 1;
  }
  const bool whole = way == Mapping::Vector::Outer && may_end_whole(true);
  auto fit = [&](std::optional<int64_t> n) {  // no wider than the axis; half as wide where that leaves no remainder
    int w = full;
    if (!n || *n <= 0) return w;
    while (w > 1 && w / 2 >= *n) w /= 2;
    if (w > 4 && (whole && !accumulators ? *n < w : *n % w && *n % (w / 2) == 0 && *n < int64_t{4} * w)) w /= 2;
    return w;
  };
  if (way == Mapping::Vector::Inner) {
    int64_t widest = 1;
    for (const loop::Stage& s : nest_.stages)
      if (!s.axes.empty()) {
        auto n = arena_.as_const(s.axes.back().extent);
        widest = std::max(widest, n ? *n : int64_t{1} << 30);
      }
    width_ = fit(widest);
    groups_rows_ = may_group_rows();
    return;
  }
  auto extent = arena_.as_const(nest_.outer.back().extent);
  width_ = fit(extent);
  if (width_ == 1) return;
  outer_vector_ = true;
  copies_ = choose_copies(cost, 0, extent);
  if (nest_.mapping.tile > 0 && nest_.outer.size() >= 2 && !accumulators) {
    tiled_ = std::all_of(nest_.stages.begin(), nest_.stages.end(), [](const loop::Stage& s) { return s.axes.empty(); });
    if (tiled_) copies_ = 1;
  }
  if (accumulators) {
    // Columns are summed side by side: whole cache lines of every row, as many as registers hold.
    copies_ = std::max(1, 8 / static_cast<int>(std::bit_ceil(static_cast<unsigned>(accumulators))));
    if (cost > 24) copies_ = std::min(copies_, 4);
    if (cost > 60) copies_ = std::min(copies_, 2);
    if (extent) copies_ = fewer_copies(copies_, *extent, false);
  }
  if (accumulators) choose_strip();
  sweeps_ = accumulators && !strip_ && may_sweep();
  if (sweeps_) copies_ = std::min(copies_, vectors_of_line());
  bool loops =
      std::any_of(nest_.stages.begin(), nest_.stages.end(), [](const loop::Stage& s) { return !s.axes.empty(); });
  int64_t group = static_cast<int64_t>(width_) * copies_;
  auto up = [&](int64_t n) { return (n + group - 1) / group * group; };
  const int64_t kBlock = loops ? 256 : 2048;
  const bool one_group = accumulators && !strip_ && !sweeps_;  // of columns, in registers
  block_ = one_group ? group : up(kBlock);
  if (tiled_) {
    block_ = kTile;
  } else if (sweeps_) {
    block_ = up(sweep_columns());
  } else if (extent && !one_group) {
    int64_t blocks = (*extent + kBlock - 1) / kBlock;
    block_ = up((*extent + blocks - 1) / std::max<int64_t>(blocks, 1));
    for (int64_t b = up(kBlock / 2); b <= 2 * kBlock; b += group)
      if (*extent > kBlock && *extent % b == 0) {
        block_ = b;
        break;
      }
  }
  block_ = std::max(block_, group);  // an empty axis, too, counts in whole groups
  if (extent && *extent <= block_)
    block_length_ = extent;
  else if (extent && *extent % block_ == 0)
    block_length_ = block_;
  blocks_ = arena_.ceildiv(nest_.outer.back().extent, arena_.constant(block_));
  ends_whole_ = whole && !tiled_ && !sweeps_ && block_length_ && *block_length_ > width_ && *block_length_ % width_;
  if (tiled_)
    for (stripe_ = kStripe; stripe_ > 1 && !arena_.known_multiple(blocks_, stripe_);) stripe_ /= 2;
}

// How far the digit of each outer axis counts: points, or blocks of them. Tiles are walked in stripes of stripe_
// columns of tiles, from the top to the bottom: what is read along the rows' axis returns to a page soon, while the
// machine still knows where it is. The last digits are then: stripe, row of tiles, column within the stripe.
std::vector<Expr> Emitter::digit_extents() {
  std::vector<Expr> out;
  size_t n = nest_.outer.size();
  for (size_t i = 0; i < n; ++i) {
    Expr e = nest_.outer[i].extent;
    if (outer_vector_ && i + 1 == n) e = blocks_;
    if (tiled_ && i + 2 == n) e = arena_.ceildiv(e, arena_.constant(kTile));
    if (strip_ == i) e = arena_.ceildiv(e, arena_.constant(strip_points_));
    if (groups_rows_ && i + 1 == n) e = arena_.floordiv(e, arena_.constant(kGroupRows * kGroupStride));
    out.push_back(e);
  }
  if (stripe_ > 1) {
    Expr width = arena_.constant(stripe_);
    std::swap(out[n - 2], out[n - 1]);
    out[n - 2] = arena_.floordiv(out[n - 2], width);
    out.push_back(width);
  }
  return out;
}

Expr Emitter::units() { return arena_.product(digit_extents()); }

void Emitter::run(const std::string& symbol) {
  llvm::Function* body = begin_body(symbol);
  // Pointers and sizes come through the context: {pointers, sizes}.
  Value* context = body->getArg(0);
  auto field = [&](Value* array, uint64_t i) -> Value* {
    auto* load = B.CreateLoad(B.getPtrTy(), B.CreateConstInBoundsGEP1_64(B.getPtrTy(), array, i));
    load->setMetadata("invariant.load", llvm::MDNode::get(vb_.context(), {}));
    return load;
  };
  Value* pointers = field(context, 0);
  sizes_ = field(context, 1);
  for (size_t i = 0; i < signature_.buffers.size(); ++i) bases_[signature_.buffers[i].index] = field(pointers, i);
  scopes_.emplace_back();
  allocate_locals();
  run_units(body->getArg(1), body->getArg(2));
  if (streams_) vb_.fence_streams();
  B.CreateRetVoid();
  emit_entry(symbol, body);
}

llvm::Function* Emitter::begin_body(const std::string& symbol) {
  auto* type = llvm::FunctionType::get(B.getVoidTy(), {B.getPtrTy(), B.getInt64Ty(), B.getInt64Ty()}, false);
  function_ = llvm::Function::Create(type, llvm::Function::InternalLinkage, symbol + "_body", vb_.module);
  vb_.set_attributes(*function_);
  entry_ = llvm::BasicBlock::Create(vb_.context(), "entry", function_);
  B.SetInsertPoint(entry_);
  return function_;
}

void Emitter::emit_entry(const std::string& symbol, llvm::Function* body) {
  auto* type = llvm::FunctionType::get(B.getVoidTy(), {B.getPtrTy(), B.getPtrTy()}, false);
  auto* f = llvm::Function::Create(type, llvm::Function::ExternalLinkage, symbol, vb_.module);
  vb_.set_attributes(*f);
  B.SetInsertPoint(llvm::BasicBlock::Create(vb_.context(), "entry", f));
  scopes_.assign(1, Scope());
  symbols_.clear();
  depths_.clear();
  sizes_ = f->getArg(1);
  auto* pair = llvm::ArrayType::get(B.getPtrTy(), 2);
  Value* context = B.CreateAlloca(pair);
  B.CreateStore(f->getArg(0), context);
  B.CreateStore(f->getArg(1), B.CreateConstInBoundsGEP1_64(B.getPtrTy(), context, 1));
  Expr n = units();
  if (arena_.is_const(n, 1)) {
    B.CreateCall(body, {context, B.getInt64(0), B.getInt64(1)});
  } else {
    int64_t points = tiled_          ? kTile * kTile
                     : outer_vector_ ? block_ * strip_points_
                     : groups_rows_  ? kGroupRows * kGroupStride
                                     : 1;
    Value* grain = B.getInt64(static_cast<uint64_t>(std::max<int64_t>(1, nest_.mapping.grain)));
    if (Expr work = schedule::point_work(arena_, nest_); !arena_.as_const(work)) {
      Value *one = B.getInt64(1), *cost = emit(work);
      auto at_least_one = [&](Value* v) { return B.CreateSelect(B.CreateICmpSLT(v, one), one, v); };
      Value* task = B.getInt64(static_cast<uint64_t>(schedule::task_cost(vb_.target, nest_)));
      grain = at_least_one(B.CreateSDiv(task, at_least_one(cost)));
    }
    // In units, rounded up.
    grain = B.CreateMul(grain, B.getInt64(static_cast<uint64_t>(outer_vector_ ? width_ : 1)));
    grain = B.CreateUDiv(B.CreateAdd(grain, B.getInt64(static_cast<uint64_t>(points - 1))),
                         B.getInt64(static_cast<uint64_t>(points)));
    auto parallel = vb_.declare("braze_parallel_for", B.getVoidTy(),
                                {B.getInt64Ty(), B.getInt64Ty(), B.getInt64Ty(), B.getPtrTy(), B.getPtrTy()});
    B.CreateCall(parallel, {B.getInt64(0), emit(n), grain, body, context});
  }
  B.CreateRetVoid();
}

Emitter::Values Emitter::loop(Value* begin, Value* end, int64_t step, bool nonempty, Values init,
                              const std::function<Values(Value*, Values)>& body) {
  auto block = [&] { return llvm::BasicBlock::Create(vb_.context(), "", function_); };
  llvm::BasicBlock *before = B.GetInsertBlock(), *head = block();
  Scope scope;
  scope.nonempty = nonempty;
  scope.enter = B.CreateBr(head);
  B.SetInsertPoint(head);
  llvm::PHINode* iv = B.CreatePHI(B.getInt64Ty(), 2);
  iv->addIncoming(begin, before);
  llvm::SmallVector<llvm::PHINode*, 8> phis;
  Values current;
  for (Value* v : init) {
    phis.push_back(B.CreatePHI(v->getType(), 2));
    phis.back()->addIncoming(v, before);
    current.push_back(phis.back());
  }
  llvm::BasicBlock* exit = nullptr;
  Values out = current;
  if (!nonempty) {
    // Test first; what the loop carries is then known at its head.
    llvm::BasicBlock* first = block();
    exit = block();
    B.CreateCondBr(B.CreateICmpSLT(iv, end), first, exit);
    B.SetInsertPoint(first);
  }
  scopes_.push_back(std::move(scope));
  depths_.clear();
  Values next = body(iv, current);
  scopes_.pop_back();
  depths_.clear();
  Value* stepped = B.CreateAdd(iv, B.getInt64(static_cast<uint64_t>(step)), "", true, true);
  llvm::BasicBlock* latch = B.GetInsertBlock();
  iv->addIncoming(stepped, latch);
  for (size_t i = 0; i < phis.size(); ++i) phis[i]->addIncoming(next[i], latch);
  if (nonempty) {
    exit = block();
    B.CreateCondBr(B.CreateICmpSLT(stepped, end), head, exit);
    out = next;
  } else {
    B.CreateBr(head);
  }
  for (size_t i = 0; i < phis.size(); ++i) {
    if (next[i] != phis[i]) continue;  // else the loop leaves it as it is
    phis[i]->replaceAllUsesWith(init[i]);
    phis[i]->eraseFromParent();
    out[i] = init[i];
  }
  B.SetInsertPoint(exit);
  return out;
}

// A unit's position is a number with one digit per outer axis (the last one: its block), counted up with carries.
void Emitter::run_units(Value* lo, Value* hi) {
  std::vector<Expr> extents = digit_extents();
  std::vector<size_t> live;  // digits that ever move
  for (size_t i = 0; i < extents.size(); ++i)
    if (!arena_.is_const(extents[i], 1)) live.push_back(i);
  auto run = [&](Value* u, llvm::ArrayRef<Value*> moving) {
    Values digits(extents.size(), B.getInt64(0));
    for (size_t i = 0; i < live.size(); ++i) digits[live[i]] = live.size() == 1 ? u : moving[i];
    run_unit(digits);
  };
  Values first;
  if (live.size() > 1) {
    Value* rest = lo;
    first.resize(live.size());
    for (size_t i = live.size(); i-- > 1;) {
      Value* n = emit(extents[live[i]]);
      first[i] = B.CreateURem(rest, n);
      rest = B.CreateUDiv(rest, n);
    }
    first[0] = rest;
  }
  loop(lo, hi, 1, true, first, [&](Value* u, Values digits) {
    run(u, digits);
    Value* carry = nullptr;
    for (size_t i = digits.size(); i-- > 0;) {
      Value* up = B.CreateAdd(digits[i], carry ? B.CreateZExt(carry, B.getInt64Ty()) : B.getInt64(1), "", true, true);
      if (i == 0) {
        digits[i] = up;
        break;
      }
      carry = B.CreateICmpEQ(up, emit(extents[live[i]]));
      digits[i] = B.CreateSelect(carry, B.getInt64(0), up);
    }
    return digits;
  });
}

void Emitter::run_unit(llvm::ArrayRef<Value*> digits) {
  size_t n = nest_.outer.size();
  for (size_t i = 0; i < n; ++i)
    if (strip_ != i && (!(outer_vector_ || groups_rows_) || i + (tiled_ ? 2 : 1) < n))
      bind(nest_.outer[i].var, digits[i], top());
  if (groups_rows_) {
    run_row_group(B.CreateMul(digits[n - 1], B.getInt64(kGroupRows * kGroupStride), "", true, true));
    return;
  }
  if (!outer_vector_) {
    run_stages();
    return;
  }
  Value* row_of_tiles = tiled_ ? digits[stripe_ > 1 ? n - 1 : n - 2] : nullptr;
  Value* block = digits[n - 1];
  if (stripe_ > 1) {
    block = B.CreateMul(digits[n - 2], B.getInt64(static_cast<uint64_t>(stripe_)), "", true, true);
    block = B.CreateAdd(block, digits[n], "", true, true);
    ends_stripe_ = B.CreateICmpEQ(digits[n], B.getInt64(static_cast<uint64_t>(stripe_ - 1)));
  }
  Value* begin = B.CreateMul(block, B.getInt64(static_cast<uint64_t>(block_)), "", true, true);
  Value* end;
  if (block_length_) {
    end = B.CreateAdd(begin, B.getInt64(static_cast<uint64_t>(*block_length_)), "", true, true);
  } else {
    Value* extent = emit(nest_.outer[n - 1].extent);
    end = B.CreateAdd(begin, B.getInt64(static_cast<uint64_t>(block_)), "", true, true);
    end = B.CreateSelect(B.CreateICmpSLT(end, extent), end, extent);
  }
  vector_.var = nest_.outer[n - 1].var;
  if (tiled_) {
    run_tile(B.CreateMul(row_of_tiles, B.getInt64(kTile), "", true, true), begin, end);
  } else if (sweeps_) {
    run_sweep(begin, end);
  } else if (strip_) {
    run_strip(digits[*strip_], begin, end);
  } else {
    run_columns(begin, end, block_length_, [&] { run_stages(); });
  }
  vector_ = {};
}

void Emitter::run_stages() {
  for (const loop::Stage& s : nest_.stages) run_stage(s);
}

void Emitter::run_stage(const loop::Stage& stage) {
  stage_ = &stage;
  if (stage.axes.empty()) {
    run_ops(stage, nullptr);
    return;
  }
  if (!outer_vector_) {
    int accumulators = 0;
    for (const LoopOp& op : stage.ops) accumulators += op.code == OpCode::Reduce;
    stage_copies_ =
        width_ > 1 ? choose_copies(body_cost(stage), accumulators, arena_.as_const(stage.axes.back().extent)) : 1;
  }
  Values carried = run_axis(stage, 0, begin_reductions(stage));
  finish_reductions(stage, carried);
}

int64_t Emitter::steps(const loop::Stage& stage, size_t k) const {
  int64_t group = !outer_vector_ && width_ > 1 ? static_cast<int64_t>(width_) * stage_copies_ : 1, n = 1;
  for (; k < stage.axes.size(); ++k) {
    auto known = arena_.as_const(stage.axes[k].extent);
    if (!known) return INT64_MAX;
    n *= k + 1 < stage.axes.size() ? *known : (*known + group - 1) / group;
  }
  return n;
}

bool Emitter::folds(const loop::Stage& stage, size_t k) const { return steps(stage, k) > 2 * kShortRun; }

Emitter::Values Emitter::run_axis(const loop::Stage& stage, size_t k, Values carried) {
  const loop::Axis& axis = stage.axes[k];
  Value* end = emit(axis.extent);
  auto known = arena_.as_const(axis.extent);
  bool sums = false, variances = false;
  for (const Accumulator& a : accumulators_) {
    sums |= runs(a) && is_floating(a.op->dtype);
    variances |= is_moment(a.op->reduce) && !a.shared;
  }
  // `length` positions from begin, or what is left, with sums of their own.
  Value* start = B.getInt64(0);
  auto in_runs = [&](int64_t length, const std::function<Values(Value*, Value*, std::optional<int64_t>, Values)>& run) {
    bool even = known && *known % length == 0;
    return loop(start, end, length, known && *known > 0, carried, [&](Value* begin, const Values& current) {
      Value* stop = B.CreateAdd(begin, B.getInt64(static_cast<uint64_t>(length)), "", true, true);
      if (!even) stop = B.CreateSelect(B.CreateICmpSLT(stop, end), stop, end);
      Values inner = run(begin, stop, even ? std::optional<int64_t>(length) : std::nullopt, restart(current));
      return resume(current, inner);
    });
  };
  if (k + 1 < stage.axes.size()) {
    auto each = [&](Value* begin, Value* stop, bool nonempty, Values from) {
      return loop(begin, stop, 1, nonempty, std::move(from), [&](Value* iv, Values current) {
        bind(axis.var, iv, top());
        return run_axis(stage, k + 1, std::move(current));
      });
    };
    if (!variances || folds(stage, k + 1) || !folds(stage, k))
      return each(B.getInt64(0), end, known && *known > 0, carried);
    return in_runs(std::max<int64_t>(1, kShortRun / std::max<int64_t>(1, steps(stage, k + 1))),
                   [&](Value* begin, Value* stop, std::optional<int64_t>, Values from) {
                     return each(begin, stop, true, std::move(from));
                   });
  }
  // Of columns, the first values are few and may lie far from the others: the first runs are short, and none is much
  // longer than all before it, so that no mean of those is a bad centre for it.
  if (variances && stage.axes.size() == 1 && (outer_vector_ || width_ == 1) && (!known || *known > 4)) {
    constexpr int64_t kEnds[] = {2, 8, 32, 128}, kFew = std::size(kEnds), kLong = 256;  // then every kLong
    auto number = [&](int64_t n) { return B.getInt64(static_cast<uint64_t>(n)); };
    Value* runs =
        B.CreateAdd(B.CreateSDiv(B.CreateAdd(end, number(kLong - 1 - kEnds[kFew - 1])), number(kLong)), number(kFew));
    for (int64_t i = kFew; i-- > 0;) runs = B.CreateSelect(B.CreateICmpSLE(end, number(kEnds[i])), number(i + 1), runs);
    runs = B.CreateSelect(B.CreateICmpSLE(end, number(0)), number(0), runs);
    return loop(number(0), runs, 1, known.has_value(), carried, [&](Value* i, const Values& current) {
      auto place = [&](Value* run) {
        Value* at = B.CreateAdd(B.CreateMul(B.CreateSub(run, number(kFew)), number(kLong)), number(kEnds[kFew - 1]));
        for (int64_t n = kFew; n-- > 0;)
          at = B.CreateSelect(B.CreateICmpEQ(run, number(n)), number(n ? kEnds[n - 1] : 0), at);
        return at;
      };
      Value* stop = place(B.CreateAdd(i, number(1)));
      stop = B.CreateSelect(B.CreateICmpSLT(stop, end), stop, end);
      return resume(current, run_last_axis(stage, place(i), stop, std::nullopt, restart(current)));
    });
  }
  // Long sums in two levels, as rounding errors grow with the number of additions to one accumulator.
  int64_t step = !outer_vector_ && width_ > 1 ? static_cast<int64_t>(width_) * stage_copies_ : 1,
          run = variances ? kShortRun : kRun;
  if (int64_t apart = copies_apart(stage)) {
    const int64_t span = apart * stage_copies_;
    carried = run_apart(stage, apart, sums ? run : apart / width_, std::move(carried));
    const int64_t left = *known % span;
    if (left == 0) return carried;
    start = B.getInt64(static_cast<uint64_t>(*known - left));
    known = left;
  }
  if (sums && (!known || *known > 2 * run * step))
    return in_runs(run * step, [&](Value* begin, Value* stop, std::optional<int64_t> length, Values from) {
      return run_last_axis(stage, begin, stop, length, std::move(from));
    });
  if (sums && !variances && stage.axes.size() > 1 && known && *known >= 8 * step) {
    Values inner = run_last_axis(stage, start, end, known, restart(carried));
    return resume(carried, inner);
  }
  return run_last_axis(stage, start, end, known, std::move(carried));
}

Emitter::Values Emitter::run_last_axis(const loop::Stage& stage, Value* begin, Value* end,
                                       std::optional<int64_t> length, Values carried) {
  const loop::Axis& axis = stage.axes.back();
  if (writes_taps_out(stage, length)) {
    for (int64_t i = 0; i < *length; ++i) {
      bind(axis.var, B.CreateAdd(begin, B.getInt64(static_cast<uint64_t>(i))), top());
      run_ops(stage, &carried);
    }
    return carried;
  }
  if (outer_vector_ || width_ == 1)
    return loop(begin, end, 1, length && *length > 0, std::move(carried), [&](Value* iv, Values current) {
      bind(axis.var, iv, top());
      run_ops(stage, &current);
      return current;
    });
  int64_t group = static_cast<int64_t>(width_) * stage_copies_;
  vector_.var = axis.var;
  auto step = [&](Value* iv, int copies, Value* mask, Values current) {
    vector_.iv = iv;
    vector_.copies = copies;
    vector_.mask = mask;
    bind(axis.var, iv, top());
    run_ops(stage, &current);
    return current;
  };
  if (carried.empty() && length && *length > width_ && *length % width_ && may_end_whole(false)) {
    end_whole(begin, end, *length, stage_copies_, [&](Value* iv, int copies) { step(iv, copies, nullptr, {}); });
    vector_ = {};
    return carried;
  }
  Value* middle = end;
  int64_t whole = length ? *length / group * group : 0;
  if (length) {
    if (whole != *length) middle = B.CreateAdd(begin, B.getInt64(static_cast<uint64_t>(whole)), "", true, true);
  } else {
    middle = B.CreateAnd(B.CreateSub(end, begin), B.getInt64(static_cast<uint64_t>(-group)));
    middle = B.CreateAdd(begin, middle, "", true, true);
  }
  if (!length || whole)
    carried = loop(begin, middle, group, length.has_value(), std::move(carried),
                   [&](Value* iv, Values current) { return step(iv, stage_copies_, nullptr, std::move(current)); });
  // What is left of moments is counted lane by lane (reduce.cpp).
  const bool all = length && *length % width_ == 0 &&
                   std::ranges::none_of(accumulators_, [](const Accumulator& a) { return is_moment(a.op->reduce); });
  if (!length || whole != *length)
    carried = loop(middle, end, width_, length.has_value(), std::move(carried), [&](Value* iv, Values current) {
      if (all) return step(iv, 1, nullptr, std::move(current));
      Value* left = B.CreateTrunc(B.CreateSub(end, iv), B.getInt32Ty());
      Value* mask = B.CreateICmpULT(vb_.iota(B.getInt32Ty(), width_), vb_.splat(left, width_));
      return step(iv, 1, mask, std::move(current));
    });
  vector_ = {};
  return carried;
}

}  // namespace braze::codegen::cpu
