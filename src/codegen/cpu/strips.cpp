// Strips: sums of which neighbouring points of an outer axis share an operand, as products of matrices and convolutions
// are. Several of them at once, each with an accumulator of its own, read it once (register tiling).
#include <algorithm>

#include "codegen/cpu/emitter.h"
#include "loop/window.h"

namespace braze::codegen::cpu {

using loop::OpCode;

namespace {

// With one accumulator each, and as many registers again for what they read. Of sixteen registers, products of two
// vectors with each point's number take twelve, two and one.
constexpr int64_t kMostPoints = 8, kMostPointsOfSixteen = 7, kMostPointsOfTwo = 6;
// Of an operand that points share: it is read vector by vector in steps of a row, once a strip, which only a cache near
// by serves.
constexpr int64_t kMostShared = int64_t{4} << 20;
constexpr int64_t kMostWritten = 1024;  // instructions of taps that are written out
constexpr int kProduct = 4;             // what a product of two loads costs

// How many points of an axis at once: the fewest steps, where each has a cost of its own.
int64_t points_at_once(int64_t extent, int64_t most) {
  constexpr int64_t kStep = 2;  // what a step costs beside its points
  int64_t best = 1, least = INT64_MAX;
  for (int64_t n = std::min(extent, most); n >= 2; --n) {
    const int64_t rest = extent % n, cost = extent / n * (n + kStep) + (rest ? rest + kStep : 0);
    // The same cost without a rest is less code.
    if (cost < least || (cost == least && rest == 0)) best = n, least = cost;
  }
  return best;
}

}  // namespace

// Whether a point that is computed again gives what it gave: the nest reads nothing that it may write, which is in the
// place of an output only where it is read at the output's own index (schedule/memory.h).
bool Emitter::may_repeat() const {
  std::vector<Expr> written;
  for (const loop::Stage& s : nest_.stages)
    for (const LoopOp& op : s.ops)
      if (op.code == OpCode::Store) written.push_back(op.index);
  for (const loop::Stage& s : nest_.stages)
    for (const LoopOp& op : s.ops)
      if (op.code == OpCode::Load && (stores_to(op.buffer) || std::ranges::count(written, op.index))) return false;
  return true;
}

// Where stores under a mask are slow, or made of branches, a row that is long enough ends with a whole vector.
void Emitter::begin_strip(size_t axis, int64_t points, int columns) {
  strip_ = axis;
  strip_points_ = points;
  copies_ = columns;
  const int64_t full = vb_.target.lanes(4), shortest = arena_.range(nest_.outer.back().extent).lo;
  if (masks_well() || shortest < full || !may_repeat()) return;
  repeats_ = true;
  width_ = static_cast<int>(full);
}

void Emitter::choose_strip() {
  if (nest_.outer.size() < 2 || width_ == 1 || !vb_.target.strips || !loop::sums_first(program_, nest_)) return;
  int64_t sums = 0;
  for (const loop::Stage& s : nest_.stages)
    for (const LoopOp& op : s.ops) {
      const bool memory = op.code == OpCode::Load || op.code == OpCode::Store;
      if (op.code == OpCode::Indirect || op.atomic_add) return;
      if (memory && program_.buffers[op.buffer].kind == loop::BufferKind::Local) return;
      sums += op.code == OpCode::Reduce;
    }
  const bool few = vb_.target.architecture == Target::Architecture::X86_64 && vb_.target.vector_bits < 512;
  int64_t most = (few ? kMostPointsOfSixteen : kMostPoints) / std::max<int64_t>(1, sums);
  const int cost = body_cost(nest_.stages[0]);
  if (cost > 24) most = std::min<int64_t>(most, 4);
  if (cost > 60) most = std::min<int64_t>(most, 2);
  for (size_t s = 1; s < nest_.stages.size(); ++s)  // what follows the sums needs registers, too
    if (body_cost(nest_.stages[s]) > 40) most = std::min<int64_t>(most, 4);
  const Expr last = nest_.outer.back().var;
  auto moves = [&](const LoopOp& op, Expr var) { return op.code == OpCode::Load && arena_.contains(op.index, var); };
  for (size_t i = nest_.outer.size() - 1; i-- > 0;) {
    auto extent = arena_.as_const(nest_.outer[i].extent);
    if (!extent || *extent < 2) continue;
    const Expr var = nest_.outer[i].var;
    bool shared = false, own = false, numbers = true;  // a point's own operands are the same for all of a row
    for (const LoopOp& op : nest_.stages[0].ops) {
      own |= moves(op, var);
      numbers &= !moves(op, var) || !moves(op, last);
      shared |= moves(op, last) && !moves(op, var) && bytes(op.buffer).value_or(kMostShared + 1) <= kMostShared;
    }
    const int64_t points = points_at_once(*extent, most);
    if (!shared || !own || points < 2) continue;
    const bool two = few && numbers && sums == 1 && cost <= kProduct &&
                     arena_.range(nest_.outer.back().extent).lo >= 2 * vb_.target.lanes(4);
    begin_strip(i, two ? points_at_once(*extent, std::min<int64_t>(most, kMostPointsOfTwo)) : points, two ? 2 : 1);
    return;
  }
  // Or they share what their windows overlap in.
  if (auto window = loop::window_of(program_, nest_)) {
    const int64_t points = points_at_once(window->points, most);
    if (points < 2) return;
    begin_strip(window->strip, points, 1);
  }
}

// Few taps of a strip are written out, so that its points share what neighbouring windows read.
bool Emitter::writes_taps_out(const loop::Stage& stage, std::optional<int64_t> taps) const {
  return strip_ && taps && *taps <= loop::kMostTaps &&
         *taps * strip_points_ * copies_ * body_cost(stage) <= kMostWritten;
}

// The strip that begins at points [digit * strip_points_]: the last one may be shorter.
void Emitter::run_strip(Value* digit, Value* begin, Value* end) {
  const Expr var = nest_.outer[*strip_].var;
  const int64_t extent = *arena_.as_const(nest_.outer[*strip_].extent), rest = extent % strip_points_;
  auto number = [&](int64_t n) { return B.getInt64(static_cast<uint64_t>(n)); };
  auto run = [&](Value* first, int64_t points) {
    bind(var, first, top());
    run_columns(begin, end, block_length_, [&] {
      const int columns = vector_.copies;
      if (points > 1) {
        vector_.rows = var;
        vector_.columns = columns;
        vector_.copies = columns * static_cast<int>(points);
      }
      run_stages();
      vector_.rows.reset();
      vector_.columns = 1;
      vector_.copies = columns;
    });
  };
  Value* first = B.CreateMul(digit, number(strip_points_), "", true, true);
  if (!rest) return run(first, strip_points_);
  // Loops of one step or none, so that what one of them computes is not taken for known behind it.
  Value* whole = B.CreateICmpSLT(first, number(extent - rest));
  auto once = [&](Value* stop, int64_t points) {
    loop(first, stop, strip_points_, false, {}, [&](Value* at, Values) {
      run(at, points);
      return Values();
    });
  };
  once(B.CreateSelect(whole, B.CreateAdd(first, number(1)), first), strip_points_);
  once(B.CreateSelect(whole, first, B.CreateAdd(first, number(1))), rest);
}

// A sum of products takes each in with one rounding. nullptr: the operand is no product of its type.
const LoopOp* Emitter::product_of(const Accumulator& a) const {
  if (!strip_ || a.op->reduce != loop::ReduceKind::Sum || a.op->dtype != DType::F32) return nullptr;
  for (const LoopOp& op : stage_->ops)
    if (op.result == a.op->args[0]) return op.code == OpCode::Mul && op.dtype == DType::F32 ? &op : nullptr;
  return nullptr;
}

}  // namespace braze::codegen::cpu
