#include "codegen/nvptx/local_rows.h"

#include <algorithm>

#include "base/check.h"
#include "schedule/index.h"

namespace braze::codegen::nvptx {

using loop::LoopOp;
using loop::OpCode;

std::map<uint32_t, LocalRow> local_rows(const loop::Program& program, const loop::Nest& nest, const Shape& shape) {
  sym::ExprArena& arena = *program.arena;
  // Where every access is at one index of straight-line stages over the same axes they stay in registers.
  struct Use {
    bool registers = true;
    const loop::Stage* stage = nullptr;
    sym::Expr index;
  };
  std::map<uint32_t, Use> uses;
  for (const loop::Stage& s : nest.stages)
    for (const LoopOp& op : s.ops) {
      if ((op.code != OpCode::Store && op.code != OpCode::Load) ||
          program.buffers[op.buffer].kind != loop::BufferKind::Local)
        continue;
      auto [it, fresh] = uses.try_emplace(op.buffer.index);
      Use& u = it->second;
      if (fresh) u.stage = &s, u.index = op.index;
      u.registers = u.registers && is_straight(arena, s, shape) && op.index == u.index &&
                    schedule::same_axes(s.axes, u.stage->axes) && !op.atomic_add;
    }
  // A stage over other axes in between makes the bindings anew.
  const bool one_shape = schedule::same_axes(nest);
  std::map<uint32_t, LocalRow> rows;
  for (auto& [id, use] : uses) {
    LocalRow& row = rows[id];
    row.in_registers = use.registers && one_shape;
    if (row.in_registers) continue;
    auto n = arena.as_const(schedule::reach(arena, program.buffers[loop::BufferId(static_cast<size_t>(id))]));
    if (!n) throw Unsupported(Reason::UnsupportedOp, "a private row of symbolic size in a GPU kernel");
    row.elements = static_cast<uint64_t>(*n);
  }
  return rows;
}

bool fits_block(const loop::Program& program, const loop::Nest& nest, const Shape& shape, const Target& target) {
  const auto each = static_cast<uint64_t>(shape.threads / shape.group);
  uint64_t bytes = 0;  // of one point's
  for (auto& [id, row] : local_rows(program, nest, shape))
    if (!row.in_registers)
      bytes += row.elements * static_cast<uint64_t>(
                                  std::max(1, size_of(program.buffers[loop::BufferId(static_cast<size_t>(id))].dtype)));
  return each * bytes <= static_cast<uint64_t>(target.shared_bytes) / 4 * 3;
}

}  // namespace braze::codegen::nvptx
