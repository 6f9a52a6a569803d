// A row's points in vectors, and what is left at its end.
#include <algorithm>

#include "codegen/cpu/emitter.h"

namespace braze::codegen::cpu {

using loop::OpCode;

// Where a store under a mask is slow, or made of branches, the last vector of a row has lanes of the one before, too.
// What it reads it reads before any of the row is written, which may be in the same place.
bool Emitter::may_end_whole(bool outer) const {
  if (masks_well()) return false;
  auto is_local = [&](const LoopOp& op) { return program_.buffers[op.buffer].kind == loop::BufferKind::Local; };
  for (const loop::Stage& s : nest_.stages)
    for (const LoopOp& op : s.ops) {
      if (op.atomic_add) return false;
      // Of an outer axis' points, stores in a loop would wait until it is over.
      if (op.code == OpCode::Store && outer && !s.axes.empty() && !is_local(op)) return false;
      if (op.code != OpCode::Load) continue;
      if (!is_local(op) && stores_to(op.buffer)) return false;
      // A row of a private buffer that a stage changes. (Of an outer axis' points each has one of its own.)
      auto changes = [&](const LoopOp& other) { return other.code == OpCode::Store && other.buffer == op.buffer; };
      if (is_local(op) && !outer && std::ranges::any_of(s.ops, changes)) return false;
    }
  return true;
}

void Emitter::end_whole(Value* begin, Value* end, int64_t length, int copies,
                        const std::function<void(Value*, int)>& step) {
  std::vector<std::function<void()>> late;
  late_ = &late;
  vector_.anywhere = true;
  step(B.CreateSub(end, B.getInt64(static_cast<uint64_t>(width_)), "", true, true), 1);
  vector_.anywhere = false;
  late_ = nullptr;
  auto run = [&](Value* from, int64_t vectors, int at_once) {
    Value* to = B.CreateAdd(from, B.getInt64(static_cast<uint64_t>(vectors * width_)), "", true, true);
    if (vectors)
      loop(from, to, int64_t{at_once} * width_, true, {}, [&](Value* iv, Values) {
        step(iv, at_once);
        return Values();
      });
    return to;
  };
  const int64_t vectors = length / width_, rest = vectors % copies;
  run(run(begin, vectors - rest, copies), rest, 1);
  for (auto& store : late) store();
}

// Groups of whole vectors, then what is left, vector by vector: under a mask, or with an end that is made whole.
void Emitter::run_columns(Value* begin, Value* end, std::optional<int64_t> length, const std::function<void()>& point) {
  int64_t group = static_cast<int64_t>(width_) * copies_;
  auto step = [&](Value* iv, int copies, Value* mask) {
    vector_.iv = iv;
    vector_.copies = copies;
    vector_.mask = mask;
    bind(*vector_.var, iv, top());
    point();
  };
  Value* middle = end;
  if (ends_whole_) {
    end_whole(begin, end, *length, copies_, [&](Value* iv, int copies) { step(iv, copies, nullptr); });
    return;
  }
  if (length) {
    int64_t whole = *length / group * group;
    if (whole != *length) middle = B.CreateAdd(begin, B.getInt64(static_cast<uint64_t>(whole)), "", true, true);
    if (whole)
      loop(begin, middle, group, true, {}, [&](Value* iv, Values) {
        step(iv, copies_, nullptr);
        return Values();
      });
    if (whole == *length) return;
  } else {
    middle = B.CreateAnd(B.CreateSub(end, begin), B.getInt64(static_cast<uint64_t>(-group)));
    middle = B.CreateAdd(begin, middle, "", true, true);
    loop(begin, middle, group, false, {}, [&](Value* iv, Values) {
      step(iv, copies_, nullptr);
      return Values();
    });
  }
  if (repeats_) {
    // The last vector ends where the row does.
    Value* last = B.CreateSub(end, B.getInt64(static_cast<uint64_t>(width_)), "", true, true);
    loop(middle, end, width_, length.has_value(), {}, [&](Value* iv, Values) {
      vector_.anywhere = true;
      step(B.CreateSelect(B.CreateICmpSLT(iv, last), iv, last), 1, nullptr);
      vector_.anywhere = false;
      return Values();
    });
    return;
  }
  loop(middle, end, width_, length.has_value(), {}, [&](Value* iv, Values) {
    Value* left = B.CreateTrunc(B.CreateSub(end, iv), B.getInt32Ty());
    step(iv, 1, B.CreateICmpULT(vb_.iota(B.getInt32Ty(), width_), vb_.splat(left, width_)));
    return Values();
  });
}

}  // namespace braze::codegen::cpu
