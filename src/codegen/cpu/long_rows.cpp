// Rows that are reduced, of more than the caches hold: the vectors in flight are some pages apart.
//
// Memory is read faster from several places at a time than from one: what looks ahead does so within a page, and each
// place has its own. So a long row is cut into spans, of which each copy takes one part from its beginning to its end,
// and of shorter ones each copy takes a row of its own. Of two tensors this is no faster.
//
// A row of some pages that is read again, by what is computed with its sum, is in a cache by then: memory would rest.
// So the next row is asked for meanwhile.
#include "codegen/cpu/emitter.h"
#include "loop/analysis.h"
#include "schedule/index.h"

namespace braze::codegen::cpu {

using loop::BufferKind;
using loop::OpCode;

namespace {

constexpr int64_t kNear = 16 << 10, kFar = 256 << 10;  // bytes from one part to the next

}  // namespace

std::optional<LoopOp> Emitter::read_once(const loop::Stage& stage) const {
  std::optional<LoopOp> read;
  const Expr var = stage.axes.back().var;
  for (const LoopOp& op : stage.ops) {
    if (op.code == OpCode::Scan || op.code == OpCode::Store || op.code == OpCode::Indirect) return std::nullopt;
    if (op.code != OpCode::Load || !arena_.contains(op.index, var)) continue;
    auto along = arena_.affine_in(op.index, var);
    if (!along || !arena_.is_const(along->coefficient, 1) || loop::is_indirect(arena_, op.index)) return std::nullopt;
    if (read && (read->buffer != op.buffer || read->index != op.index)) return std::nullopt;
    read = op;
  }
  return read;
}

int64_t Emitter::copies_apart(const loop::Stage& stage) const {
  if (outer_vector_ || width_ == 1 || stage_copies_ == 1) return 0;
  if (footprint().value_or(0) <= vb_.target.cache_bytes) return 0;
  const auto read = read_once(stage);
  const auto known = arena_.as_const(stage.axes.back().extent);
  if (!read || !known) return 0;
  const int64_t unit = kRun * width_, bytes = size_of(program_.buffers[read->buffer].dtype);  // in whole runs
  for (int64_t apart = kFar / bytes; apart >= kNear / bytes; apart /= 2)
    if (apart % unit == 0 && apart * stage_copies_ <= *known) return apart;
  return 0;
}

// `length` points of the last axis from `begin`, in vectors, of which `vector_` says how the copies lie.
Emitter::Values Emitter::run_vectors(const loop::Stage& stage, Value* begin, int64_t length, Values carried) {
  const Expr var = stage.axes.back().var;
  vector_.var = var;
  carried = loop(begin, after(begin, length), width_, true, std::move(carried), [&](Value* iv, Values current) {
    vector_.iv = iv;
    bind(var, iv, top());
    run_ops(stage, &current);
    return current;
  });
  vector_ = {};
  return carried;
}

// All whole spans, of which there is one at least. `run`: additions to one accumulator before its sum joins those
// before.
Emitter::Values Emitter::run_apart(const loop::Stage& stage, int64_t apart, int64_t run, Values carried) {
  const loop::Axis& axis = stage.axes.back();
  const int64_t span = apart * stage_copies_, length = run * width_,
                whole = *arena_.as_const(axis.extent) / span * span;
  Value *none = B.getInt64(0), *all = B.getInt64(static_cast<uint64_t>(whole));
  return loop(none, all, span, true, std::move(carried), [&](Value* first, Values of_spans) {
    return loop(first, after(first, apart), length, true, std::move(of_spans), [&](Value* begin, const Values& before) {
      vector_.copies = stage_copies_;
      vector_.apart = apart;
      return resume(before, run_vectors(stage, begin, length, restart(before)));
    });
  });
}

// Rows of whole vectors, as many as units for all threads.
bool Emitter::may_group_rows() const {
  constexpr int64_t kUnits = 64, kLeastBytes = 1 << 10, kMostCost = 24;
  if (width_ == 1 || nest_.outer.empty() || nest_.stages[0].axes.size() != 1 || !only_reduces()) return false;
  if (footprint().value_or(0) <= vb_.target.cache_bytes) return false;
  const loop::Stage& stage = nest_.stages[0];
  const auto read = read_once(stage);
  const auto rows = arena_.as_const(schedule::volume(arena_, nest_.outer)),
             length = arena_.as_const(stage.axes[0].extent);
  if (!read || !rows || !length || *length % width_ || body_cost(stage) > kMostCost) return false;
  const int64_t bytes = *length * size_of(program_.buffers[read->buffer].dtype), run = kRun * width_;
  constexpr int64_t kGroup = kGroupRows * kGroupStride;
  return bytes >= kLeastBytes && bytes < kNear * kGroupRows && (*length <= 2 * run || *length % run == 0) &&
         arena_.contains(read->index, nest_.outer.back().var) &&
         arena_.known_multiple(nest_.outer.back().extent, kGroup) && *rows >= kUnits * kGroup;
}

void Emitter::run_row_group(Value* first) {
  const loop::Stage& stage = nest_.stages[0];
  const loop::Axis &axis = stage.axes[0], &row = nest_.outer.back();
  stage_ = &stage;
  stage_copies_ = kGroupRows;
  auto take = [&](Value* begin, int64_t length, Values carried) {
    vector_.rows = row.var;
    vector_.rows_apart = kGroupStride;
    vector_.copies = kGroupRows;
    return run_vectors(stage, begin, length, std::move(carried));
  };
  loop(first, after(first, kGroupStride), 1, true, {}, [&](Value* top_row, const Values&) {
    bind(row.var, top_row, top());
    Values carried = begin_reductions(stage);
    Value* none = B.getInt64(0);
    const int64_t length = *arena_.as_const(axis.extent), run = kRun * width_;
    if (length <= 2 * run)
      carried = take(none, length, std::move(carried));
    else
      carried =
          loop(none, B.getInt64(static_cast<uint64_t>(length)), run, true, std::move(carried),
               [&](Value* begin, const Values& before) { return resume(before, take(begin, run, restart(before))); });
    // The values of each row, one after the other, are those of a stage of one copy.
    const std::vector<Accumulator> all = accumulators_;
    for (int r = 0; r < kGroupRows; ++r) {
      Values of_row;
      for (size_t i = 0; i < all.size(); ++i) {
        accumulators_[i].first = of_row.size();
        accumulators_[i].copies = 1;
        const auto from = carried.begin() + static_cast<long>(all[i].first) + static_cast<long>(r) * all[i].parts;
        of_row.append(from, from + all[i].parts);
      }
      bind(row.var, after(top_row, r * kGroupStride), top());
      finish_reductions(stage, of_row);
      for (size_t s = 1; s < nest_.stages.size(); ++s) run_stage(nest_.stages[s]);
    }
    return Values();
  });
}

Value* Emitter::read_later(const LoopOp& load) {
  constexpr int64_t kLeastRow = 1 << 10, kMostRow = 64 << 10;  // bytes
  if (tiled_) {
    const bool direct =
        !vector_.mask && lane_step(load.index) == 1 && !tiles_.contains({load.buffer.index, load.index.id});
    return direct ? to_next_tile(load) : nullptr;
  }
  if (outer_vector_ || nest_.outer.empty() || vector_.mask || program_.buffers[load.buffer].kind == BufferKind::Local)
    return nullptr;
  if (footprint().value_or(0) <= vb_.target.cache_bytes) return nullptr;
  // Read by a stage before, and by none that follows.
  bool before = false, now = false;
  for (const loop::Stage& s : nest_.stages) {
    const bool here = &s == stage_;
    const bool reads = std::ranges::any_of(
        s.ops, [&](const LoopOp& op) { return op.code == OpCode::Load && op.buffer == load.buffer; });
    if (now && reads) return nullptr;
    now |= here;
    before |= reads && !now;
  }
  if (!before) return nullptr;
  const int64_t bytes = size_of(program_.buffers[load.buffer].dtype);
  auto next = arena_.affine_in(load.index, nest_.outer.back().var);
  auto along = arena_.affine_in(load.index, *vector_.var);
  if (!next || !along || !arena_.is_const(along->coefficient, 1)) return nullptr;
  auto apart = arena_.as_const(next->coefficient), length = arena_.as_const(stage_->axes.back().extent);
  if (!apart || !length || *apart < *length || *length * bytes < kLeastRow || *length * bytes > kMostRow)
    return nullptr;
  return B.getInt64(static_cast<uint64_t>(*apart));
}

// The lines of the vectors in flight, so many elements further. Behind the last row there may be none: nothing is read.
void Emitter::fetch_ahead(const LoopOp& load, Value* apart) {
  constexpr int64_t kLine = 64;
  const int64_t bytes = size_of(program_.buffers[load.buffer].dtype),
                vectors = std::max<int64_t>(1, kLine / (width_ * bytes));
  Type* element = storage_type(vb_, program_.buffers[load.buffer].dtype);
  for (int64_t c = 0; c < vector_.copies; c += vectors) {
    Value* at = B.CreateAdd(apart, B.getInt64(static_cast<uint64_t>(c * width_)));
    Value* p = B.CreateGEP(element, address(load.buffer, load.index), at);
    B.CreateIntrinsic(llvm::Intrinsic::prefetch, {B.getPtrTy()},
                      {p, B.getInt32(0), B.getInt32(3), B.getInt32(1)});  // to read, into all caches, data
  }
}

}  // namespace braze::codegen::cpu
