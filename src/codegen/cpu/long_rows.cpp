// Long rows that are reduced: the vectors in flight are some pages apart.
//
// Memory is read faster from several places at a time than from one: what looks ahead does so within a page, and each
// place has its own. So the row is cut into spans, of which each copy takes one part from its beginning to its end.
#include "codegen/cpu/emitter.h"
#include "loop/analysis.h"

namespace braze::codegen::cpu {

using loop::OpCode;

namespace {

constexpr int64_t kNear = 16 << 10, kFar = 256 << 10;  // bytes from one part to the next

}  // namespace

// Where one tensor is read and more than the caches hold: from them, and of two tensors, it is no faster.
int64_t Emitter::copies_apart(const loop::Stage& stage) const {
  if (outer_vector_ || width_ == 1 || stage_copies_ == 1) return 0;
  if (footprint().value_or(0) <= vb_.target.cache_bytes) return 0;
  const loop::Axis& axis = stage.axes.back();
  std::optional<LoopOp> read;
  for (const LoopOp& op : stage.ops) {
    if (op.code == OpCode::Scan || op.code == OpCode::Store || op.code == OpCode::Indirect) return 0;
    if (op.code != OpCode::Load || !arena_.contains(op.index, axis.var)) continue;
    auto along = arena_.affine_in(op.index, axis.var);
    if (!along || !arena_.is_const(along->coefficient, 1) || loop::is_indirect(arena_, op.index)) return 0;
    if (read && (read->buffer != op.buffer || read->index != op.index)) return 0;
    read = op;
  }
  const auto known = arena_.as_const(axis.extent);
  if (!read || !known) return 0;
  const int64_t unit = kRun * width_, bytes = size_of(program_.buffers[read->buffer].dtype);  // in whole runs
  for (int64_t apart = kFar / bytes; apart >= kNear / bytes; apart /= 2)
    if (apart % unit == 0 && apart * stage_copies_ <= *known) return apart;
  return 0;
}

// All whole spans, of which there is one at least. `run`: additions to one accumulator before its sum joins those
// before.
Emitter::Values Emitter::run_apart(const loop::Stage& stage, int64_t apart, int64_t run, Values carried) {
  const loop::Axis& axis = stage.axes.back();
  const int64_t span = apart * stage_copies_, length = run * width_,
                whole = *arena_.as_const(axis.extent) / span * span;
  auto after = [&](Value* begin, int64_t n) {
    return B.CreateAdd(begin, B.getInt64(static_cast<uint64_t>(n)), "", true, true);
  };
  Value *none = B.getInt64(0), *all = B.getInt64(static_cast<uint64_t>(whole));
  return loop(none, all, span, true, std::move(carried), [&](Value* first, Values of_spans) {
    return loop(first, after(first, apart), length, true, std::move(of_spans), [&](Value* begin, const Values& before) {
      vector_.var = axis.var;
      vector_.copies = stage_copies_;
      vector_.apart = apart;
      Values sums = loop(begin, after(begin, length), width_, true, restart(before), [&](Value* iv, Values current) {
        vector_.iv = iv;
        bind(axis.var, iv, top());
        run_ops(stage, &current);
        return current;
      });
      vector_ = {};
      return resume(before, sums);
    });
  });
}

}  // namespace braze::codegen::cpu
