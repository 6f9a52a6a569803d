#include "codegen/nvptx/emitter.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "codegen/llvm/math.h"
#include "schedule/index.h"

namespace braze::codegen::nvptx {

using loop::Axis;
using loop::BufferKind;
using loop::OpCode;
using loop::Stage;

namespace {

constexpr int kTurns = 4;  // of a loop over rows of columns, at once

// A stage whose loads depend on nothing that it stores.
bool accumulates(const Stage& stage) {
  return std::none_of(stage.ops.begin(), stage.ops.end(),
                      [](const LoopOp& op) { return op.code == OpCode::Store || op.code == OpCode::Indirect; });
}

}  // namespace

Emitter::Emitter(const Program& program, const Part& part, const Target& target, bool early, llvm::Module& module)
    : program_(program),
      nest_(*part.nest),
      signature_(part.signature),
      shape_(part.shape),
      early_(early),
      ahead_(part.ahead),
      arena_(*program.arena),
      vb_(module, target),
      B(vb_.B),
      values_(nest_.values) {}

void Emitter::run(const Place& place) {
  begin(place);
  switch (shape_.way) {
    case Shape::Way::Points: run_points(); break;
    case Shape::Way::Tiles: run_tiles(); break;
    case Shape::Way::Rows: run_rows(); break;
    case Shape::Way::Columns: run_columns(); break;
    case Shape::Way::Products: run_product(); break;
    case Shape::Way::Windows: run_windows(); break;
  }
  B.CreateRetVoid();
}

void Emitter::begin(const Place& place) {
  function_ = place.function;
  unsigned buffer = place.first_buffer, size = place.first_size;
  for (BufferId b : signature_.buffers) bases_[b.index] = function_->getArg(buffer++);
  for (Expr s : signature_.sizes) sizes_[s.id] = function_->getArg(size++);
  error_ = function_->getArg(static_cast<unsigned>(function_->arg_size()) - 1);
  B.SetInsertPoint(place.begin);
  waited_ = !early_;
  if (!ahead_) wait();
  thread_ = intrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_tid_x);
  block_ = intrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_ctaid_x);
  if (place.first_block) block_ = B.CreateSub(block_, B.getInt32(static_cast<uint32_t>(place.first_block)));
  mates_ = B.getInt32(0xffffffffu);
}

// The launch may have come before what precedes it on the stream has ended; what follows may be launched from here on.
void Emitter::wait() {
  if (waited_) return;
  auto* nothing = llvm::FunctionType::get(B.getVoidTy(), false);
  B.CreateCall(llvm::InlineAsm::get(nothing, "griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;", "~{memory}",
                                    /*hasSideEffects=*/true));
  waited_ = true;
}

bool Emitter::is_steady(BufferId read) const {
  BufferKind kind = program_.buffers[read].kind;
  return ahead_ && (kind == BufferKind::Input || kind == BufferKind::Constant);
}

Value* Emitter::intrinsic(llvm::Intrinsic::ID id, llvm::ArrayRef<Value*> args) {
  return B.CreateIntrinsic(id, {}, args);
}

void Emitter::barrier() {
  if (workers_ <= 1) return;
  if (shape_.way == Shape::Way::Rows && shape_.group <= 32)
    intrinsic(llvm::Intrinsic::nvvm_bar_warp_sync, {mates_});
  else
    intrinsic(llvm::Intrinsic::nvvm_barrier0);
  written_.clear();
}

Value* Emitter::worker_is_first() { return workers_ > 1 ? B.CreateICmpEQ(rank_, B.getInt32(0)) : nullptr; }

void Emitter::if_then(Value* condition, const std::function<void()>& body) {
  if (!condition) {
    body();
    return;
  }
  auto* then = llvm::BasicBlock::Create(vb_.context(), "", function_);
  auto* after = llvm::BasicBlock::Create(vb_.context(), "", function_);
  B.CreateCondBr(condition, then, after);
  B.SetInsertPoint(then);
  scopes_.emplace_back();
  const bool waited = waited_;
  body();
  waited_ = waited;
  scopes_.pop_back();
  B.CreateBr(after);
  B.SetInsertPoint(after);
}

Emitter::Values Emitter::loop(Value* begin, Value* end, Value* step, Values init,
                              const std::function<Values(Value*, Values)>& body) {
  wait();  // once, not in every turn
  auto block = [&] { return llvm::BasicBlock::Create(vb_.context(), "", function_); };
  llvm::BasicBlock *before = B.GetInsertBlock(), *head = block(), *inside = block(), *exit = block();
  B.CreateBr(head);
  B.SetInsertPoint(head);
  llvm::PHINode* iv = B.CreatePHI(begin->getType(), 2);
  iv->addIncoming(begin, before);
  llvm::SmallVector<llvm::PHINode*, 8> phis;
  Values current;
  for (Value* v : init) {
    phis.push_back(B.CreatePHI(v->getType(), 2));
    phis.back()->addIncoming(v, before);
    current.push_back(phis.back());
  }
  B.CreateCondBr(B.CreateICmpSLT(iv, end), inside, exit);
  B.SetInsertPoint(inside);
  scopes_.emplace_back();
  Values next = body(iv, current);
  scopes_.pop_back();
  iv->addIncoming(B.CreateAdd(iv, step, "", false, true), B.GetInsertBlock());
  for (size_t i = 0; i < phis.size(); ++i) phis[i]->addIncoming(next[i], B.GetInsertBlock());
  B.CreateBr(head);
  B.SetInsertPoint(exit);
  return current;
}

// Axes' variables from the number of a point, counted with the last axis fastest.
void Emitter::bind_points(Expr point, const std::vector<Axis>& axes) {
  Expr inner = arena_.constant(1);
  size_t first = 0;
  while (first < axes.size() && arena_.is_const(axes[first].extent, 1)) ++first;
  for (size_t i = axes.size(); i-- > 0;) {
    Expr digit = arena_.floordiv(point, inner);
    if (arena_.is_const(axes[i].extent, 1))
      digit = arena_.constant(0);
    else if (i != first)
      digit = arena_.mod(digit, axes[i].extent);
    Lanes v;
    v.v.push_back(emit(digit, 0));
    bind(axes[i].var, std::move(v), true);
    inner = arena_.mul(inner, axes[i].extent);
  }
}

void Emitter::at_own_point(std::vector<Axis> axes, int lanes, const std::function<void()>& body) {
  Axis last{};
  if (lanes > 1) {
    last = axes.back();
    axes.back() = {fresh("v", last.extent), arena_.floordiv(last.extent, arena_.constant(lanes))};
  }
  Expr units = schedule::volume(arena_, axes);
  Expr unit = fresh("u", units);
  bool wide = arena_.range(units).hi > INT32_MAX - shape_.threads;
  Value* first = wide ? B.CreateMul(B.CreateZExt(block_, vb_.i64()), B.getInt64(static_cast<uint64_t>(shape_.threads)))
                      : B.CreateMul(block_, B.getInt32(static_cast<uint32_t>(shape_.threads)), "", true, true);
  Value* number = B.CreateAdd(first, wide ? B.CreateZExt(thread_, vb_.i64()) : thread_, "", true, true);
  auto known = arena_.as_const(units);
  Value* exists = known && *known % shape_.threads == 0 ? nullptr : B.CreateICmpSLT(number, emit(units, 0, wide));
  if_then(exists, [&] {
    Lanes at;
    at.v.push_back(number);
    bind(unit, at, true);
    bind_points(unit, axes);
    if (lanes > 1) {
      Value* start = emit(arena_.mul(axes.back().var, arena_.constant(lanes)), 0, !fits_i32(last.extent));
      Lanes v;
      for (int l = 0; l < lanes; ++l)
        v.v.push_back(l ? B.CreateAdd(start, vb_.integer(start, l), "", true, true) : start);
      bind(last.var, std::move(v), false);
      flight_ = {last.var, lanes, 1, {}};
    }
    outer_flight_ = flight_;
    body();
  });
}

void Emitter::run_points() {
  at_own_point(nest_.outer, shape_.vector, [&] { run_stages(); });
}

// Whether the nest reads a buffer both as it lies and turned over, so that a square and its mirror image want the same
// memory.
bool Emitter::mirrored() {
  const Axis &row = nest_.outer[nest_.outer.size() - 2], &column = nest_.outer.back();
  if (nest_.outer.size() != 2 || row.extent != column.extent || arena_.range(row.extent).hi > (1 << 15) * kTile)
    return false;
  const std::pair<Expr, Expr> turn[] = {{row.var, column.var}, {column.var, row.var}};
  for (const Stage& s : nest_.stages)
    for (const LoopOp& a : s.ops)
      for (const LoopOp& b : s.ops) {
        if (a.code != OpCode::Load || b.code != OpCode::Load || a.buffer != b.buffer || a.index == b.index) continue;
        if (arena_.substitute(a.index, turn) == b.index) return true;
      }
  return false;
}

// The n-th tile of a square grid counted in shells around its corner, each tile before its mirror image: they run at
// about the same time and share what the cache holds. As a number in the usual order.
Value* Emitter::in_shells(Value* n, Expr side) {
  auto* real = B.getFloatTy();
  // The shell k has the numbers k*k to k*k + 2*k. The root may be one off: below 2^30 a float is off by less.
  Value* k = B.CreateFPToSI(B.CreateUnaryIntrinsic(llvm::Intrinsic::sqrt, B.CreateSIToFP(n, real)), vb_.i32());
  Value* one = B.getInt32(1);
  k = B.CreateSelect(B.CreateICmpSGT(B.CreateMul(k, k), n), B.CreateSub(k, one), k);
  Value* next = B.CreateAdd(k, one);
  k = B.CreateSelect(B.CreateICmpSLE(B.CreateMul(next, next), n), next, k);
  Value* rest = B.CreateSub(n, B.CreateMul(k, k));
  Value* along = B.CreateLShr(rest, one);
  Value* below = B.CreateICmpEQ(B.CreateAnd(rest, one), B.getInt32(0));
  return B.CreateAdd(B.CreateMul(B.CreateSelect(below, k, along), emit(side, 0, false)),
                     B.CreateSelect(below, along, k));
}

void Emitter::run_tiles() {
  size_t n = nest_.outer.size();
  const Axis &row = nest_.outer[n - 2], &column = nest_.outer[n - 1];
  Expr side = arena_.constant(kTile);
  std::vector<Axis> axes(nest_.outer.begin(), nest_.outer.end() - 2);
  axes.push_back({fresh("row", row.extent), arena_.ceildiv(row.extent, side)});
  axes.push_back({fresh("column", column.extent), arena_.ceildiv(column.extent, side)});
  Expr unit = fresh("u", schedule::volume(arena_, axes));
  Lanes at;
  at.v.push_back(mirrored() ? in_shells(block_, axes.back().extent) : block_);
  bind(unit, at, true);
  bind_points(unit, axes);
  constexpr int kCopies = kTile / kTileRows;
  tile_x_ = B.CreateAnd(thread_, B.getInt32(kTile - 1));
  tile_y_ = B.CreateLShr(thread_, B.getInt32(5));
  workers_ = shape_.threads;
  // `along` moves with the thread's x, `down` with its y and the copies; those beyond the end are put at 0 and are not
  // active.
  auto place = [&](const Axis& along, Expr along_tile, const Axis& down, Expr down_tile) {
    bool wide = !fits_i32(along.extent) || !fits_i32(down.extent);
    auto widen = [&](Value* v) { return wide ? B.CreateZExt(v, vb_.i64()) : v; };
    auto start = [&](Expr tile) { return emit(arena_.mul(tile, side), 0, wide); };
    auto exact = [&](const Axis& a) { return arena_.known_multiple(a.extent, kTile); };
    Flight f;
    f.copies = kCopies;
    Value* x = B.CreateAdd(start(along_tile), widen(tile_x_));
    Value* x_in = exact(along) ? nullptr : B.CreateICmpSLT(x, emit(along.extent, 0, wide));
    if (x_in) x = B.CreateSelect(x_in, x, vb_.integer(x, 0));
    Lanes xs, ys;
    xs.v.push_back(x);
    Value* y0 = B.CreateAdd(start(down_tile), widen(tile_y_));
    for (int c = 0; c < kCopies; ++c) {
      Value* y = B.CreateAdd(y0, vb_.integer(y0, c * kTileRows));
      Value* in = x_in;
      if (!exact(down)) {
        Value* y_in = B.CreateICmpSLT(y, emit(down.extent, 0, wide));
        y = B.CreateSelect(y_in, y, vb_.integer(y, 0));
        in = in ? B.CreateAnd(in, y_in) : y_in;
      }
      ys.v.push_back(y);
      f.active.push_back(in);
    }
    bind(along.var, xs, true);
    bind(down.var, ys, true);
    flight_ = f;
  };
  size_t m = axes.size();
  place(row, axes[m - 2].var, column, axes[m - 1].var);
  load_tiles([&] { place(column, axes[m - 1].var, row, axes[m - 2].var); });
  workers_ = 1;
  outer_flight_ = flight_;
  run_stages();
}

void Emitter::run_rows() {
  int each = shape_.threads / shape_.group;
  workers_ = shape_.group;
  Expr points = schedule::volume(arena_, nest_.outer);
  Expr point = fresh("u", points);
  bool wide = arena_.range(points).hi > INT32_MAX - shape_.threads;
  Value* number = wide ? B.CreateZExt(block_, vb_.i64()) : block_;
  rank_ = thread_;
  Value* exists = nullptr;
  if (each > 1) {
    Value* own = B.CreateUDiv(thread_, B.getInt32(static_cast<uint32_t>(shape_.group)));
    rank_ = B.CreateAnd(thread_, B.getInt32(static_cast<uint32_t>(shape_.group - 1)));
    number = B.CreateAdd(B.CreateMul(number, vb_.integer(number, each), "", true, true),
                         wide ? B.CreateZExt(own, vb_.i64()) : own, "", true, true);
    auto known = arena_.as_const(points);
    if (!known || *known % each) {
      exists = B.CreateICmpSLT(number, emit(points, 0, wide));
      if (shape_.group < 32)
        mates_ = intrinsic(llvm::Intrinsic::nvvm_vote_ballot_sync, {B.getInt32(0xffffffffu), exists});
    }
  }
  if_then(exists, [&] {
    Lanes at;
    at.v.push_back(number);
    bind(point, at, true);
    bind_points(point, nest_.outer);
    place_locals();
    run_stages();
  });
}

void Emitter::run_columns() {
  const Axis& last = nest_.outer.back();
  int lanes = shape_.vector;
  workers_ = shape_.threads / shape_.group;
  int64_t width = static_cast<int64_t>(shape_.group) * lanes;
  std::vector<Axis> axes(nest_.outer.begin(), nest_.outer.end() - 1);
  axes.push_back({fresh("v", last.extent), arena_.ceildiv(last.extent, arena_.constant(width))});
  Expr unit = fresh("u", schedule::volume(arena_, axes));
  Lanes at;
  at.v.push_back(block_);
  bind(unit, at, true);
  bind_points(unit, axes);
  Value* x = B.CreateURem(thread_, B.getInt32(static_cast<uint32_t>(shape_.group)));
  rank_ = B.CreateUDiv(thread_, B.getInt32(static_cast<uint32_t>(shape_.group)));
  bool wide = !fits_i32(last.extent);
  Value* start = emit(arena_.mul(axes.back().var, arena_.constant(width)), 0, wide);
  Value* offset = B.CreateMul(x, B.getInt32(static_cast<uint32_t>(lanes)));
  start = B.CreateAdd(start, wide ? B.CreateZExt(offset, vb_.i64()) : offset);
  flight_ = {last.var, lanes, 1, {}};
  if (!arena_.known_multiple(last.extent, width)) {
    Value* exists = B.CreateICmpSLT(start, emit(last.extent, 0, wide));
    start = B.CreateSelect(exists, start, vb_.integer(start, 0));
    flight_.active.push_back(exists);
  }
  Lanes v;
  for (int l = 0; l < lanes; ++l) v.v.push_back(l ? B.CreateAdd(start, vb_.integer(start, l)) : start);
  bind(last.var, std::move(v), false);
  outer_flight_ = flight_;
  run_stages();
}

void Emitter::run_stages() {
  for (const Stage& s : nest_.stages) run_stage(s);
}

// Threads that share the outer point wait for each other where this stage reads what an earlier one wrote.
void Emitter::meet(const Stage& stage) {
  if (workers_ <= 1) return;
  for (const LoopOp& op : stage.ops) {
    if (op.code != OpCode::Load || std::find(written_.begin(), written_.end(), op.buffer) == written_.end()) continue;
    barrier();
    return;
  }
}

void Emitter::run_stage(const Stage& stage) {
  stage_ = &stage;
  if (stage.axes.empty()) {
    meet(stage);
    straight_ = false;
    flight_ = outer_flight_;
    run_ops(stage, nullptr);
    return;
  }
  run_axes(stage);
}

void Emitter::run_axes(const Stage& stage) {
  Expr total = schedule::volume(arena_, stage.axes);
  auto known = arena_.as_const(total);
  bool rows = shape_.way == Shape::Way::Rows;
  int lanes = rows ? lanes_of(arena_, stage, shape_) : 1;
  int64_t step = static_cast<int64_t>(workers_) * lanes;
  bool wide = arena_.range(total).hi > INT32_MAX - step * 32;
  // Loads of several turns are in flight at once where a turn does no more than load and add up.
  int turns = !rows && accumulates(stage) ? kTurns : 1;
  auto integer = [&](int64_t n) {
    return wide ? B.getInt64(static_cast<uint64_t>(n)) : B.getInt32(static_cast<uint32_t>(n));
  };
  Value* rank = rank_ ? rank_ : B.getInt32(0);
  Value* first = B.CreateMul(rank, B.getInt32(static_cast<uint32_t>(lanes)), "", true, true);
  if (wide) first = B.CreateZExt(first, vb_.i64());
  bool straight = is_straight(arena_, stage, shape_);
  bool again = straight && known_for_ && schedule::same_axes(known_for_->axes, stage.axes);
  if (!again) known_.clear();
  known_for_ = straight ? &stage : nullptr;
  straight_ = straight;
  meet(stage);

  // Groups of lanes from `base` on; the first `certain` of them exist.
  auto place = [&](Value* base, int copies, int64_t certain) {
    Flight f = rows ? Flight{stage.axes.back().var, lanes, copies, {}} : outer_flight_;
    Values at;
    for (int c = 0; c < copies; ++c) {
      Value* p = c ? B.CreateAdd(base, integer(c * step), "", true, true) : base;
      Value* in = nullptr;
      if (c >= certain) {
        in = B.CreateICmpSLT(p, emit(total, 0, wide));
        p = B.CreateSelect(in, p, integer(0));
      }
      at.push_back(p);
      if (rows) f.active.push_back(in);
    }
    flight_ = f;
    stage_positions_ = at;
    bind_positions(stage.axes, at, lanes);
  };
  if (straight) {
    int copies = static_cast<int>((*known + step - 1) / step);
    if (copies > 0) {
      if (again)
        flight_ = stage_flight_;
      else
        place(first, copies, *known / step);
      stage_flight_ = flight_;
      // Of so few blocks each waits for memory by itself; of more the others hide it, and registers are worth more.
      auto blocks = arena_.as_const(shape_.blocks);
      if (!again && workers_ > 1 && blocks && *blocks <= vb_.target.multiprocessors) load_for_later(stage);
      Values carried = begin_reductions(stage);
      run_ops(stage, &carried);
      finish_reductions(std::move(carried));
      return;
    }
  }
  known_for_ = nullptr;
  straight_ = false;
  int copies = rows ? shape_.copies : 1;
  bool whole = known && *known % (step * copies) == 0;
  if (known && *known < step * turns) turns = 1;
  flight_ = rows ? Flight{stage.axes.back().var, lanes, copies, {}} : outer_flight_;
  Values carried = begin_reductions(stage);
  Value* end = emit(total, 0, wide);
  if (turns > 1) {
    // All but the last turns, which are too few; where those begin is carried along.
    carried.push_back(first);
    carried = loop(first, B.CreateSub(end, integer(step * (turns - 1))), integer(step * turns), std::move(carried),
                   [&](Value* base, Values current) {
                     current.pop_back();
                     for (int t = 0; t < turns; ++t) {
                       place(t ? B.CreateAdd(base, integer(step * t), "", true, true) : base, 1, 1);
                       run_ops(stage, &current);
                     }
                     current.push_back(B.CreateAdd(base, integer(step * turns), "", true, true));
                     return current;
                   });
    first = carried.pop_back_val();
  }
  if (copies > 1 && !whole && (!known || *known >= step * copies)) {
    // Turns of which every copy exists ask nothing of each element; what is left is one more.
    carried.push_back(first);
    carried = loop(first, B.CreateSub(end, integer(step * (copies - 1))), integer(step * copies), std::move(carried),
                   [&](Value* base, Values current) {
                     current.pop_back();
                     place(base, copies, copies);
                     run_ops(stage, &current);
                     current.push_back(B.CreateAdd(base, integer(step * copies), "", true, true));
                     return current;
                   });
    first = carried.pop_back_val();
  }
  carried = loop(first, end, integer(step * copies), std::move(carried), [&](Value* base, Values current) {
    place(base, copies, whole ? copies : 1);
    run_ops(stage, &current);
    return current;
  });
  finish_reductions(std::move(carried));
}

// The axes' variables at each position (one per copy, counted with the last axis fastest; the lanes follow it along the
// last axis, or share it).
void Emitter::bind_positions(const std::vector<Axis>& axes, const Values& positions, int lanes, bool along) {
  auto spread = [&](auto at_copy, bool follow) {
    Lanes out;
    for (size_t c = 0; c < positions.size(); ++c) {
      Value* v = at_copy(static_cast<int>(c));
      for (int l = 0; l < lanes; ++l)
        out.v.push_back(l && follow ? B.CreateAdd(v, vb_.integer(v, l), "", true, true) : v);
    }
    return out;
  };
  if (axes.size() == 1) {
    bind(axes[0].var, spread([&](int c) { return positions[static_cast<size_t>(c)]; }, along), !along || lanes == 1);
    return;
  }
  Expr position = fresh("p", schedule::volume(arena_, axes));
  bind(position, spread([&](int c) { return positions[static_cast<size_t>(c)]; }, false), true);
  Expr inner = arena_.constant(1);
  for (size_t i = axes.size(); i-- > 0;) {
    Expr digit = arena_.floordiv(position, inner);
    if (i) digit = arena_.mod(digit, axes[i].extent);
    const bool follow = along && i + 1 == axes.size();
    bind(axes[i].var, spread([&](int c) { return emit(digit, c * lanes); }, follow), !follow || lanes == 1);
    inner = arena_.mul(inner, axes[i].extent);
  }
}

}  // namespace braze::codegen::nvptx
