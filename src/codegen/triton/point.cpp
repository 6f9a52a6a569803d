#include "codegen/triton/point.h"

#include <algorithm>

#include "base/check.h"
#include "codegen/triton/printer.h"

namespace braze::codegen::triton {

using loop::BufferKind;
using loop::OpCode;

PointText Printer::point(const std::array<Expr, 4>& sizes, const PointNames& names, std::set<std::string>& helpers) {
  if (nest_.stages.size() != 1 || !nest_.stages[0].axes.empty())
    throw Inexpressible("a function of attention's scores that is no expression");
  const loop::Stage& stage = nest_.stages[0];
  stage_ = &stage;
  indent_ = 0;
  auto given = [&](const LoopOp& op) {
    const loop::Buffer& b = program_.buffers[op.buffer];
    return b.kind == BufferKind::Input && b.input < names.values.size();
  };
  for (const LoopOp& op : stage.ops) {
    wide_ |= (op.code == OpCode::Load && !given(op) && !fits_i32(op.index)) ||
             (op.code == OpCode::Index && !fits_i32(op.index)) || (op.code == OpCode::Indirect && !fits_i32(op.bound));
  }
  auto name_of = [&](const std::string& s) { return wide_ ? s + ".to(tl.int64)" : s; };
  size_t axis = 0;
  for (size_t d = 0; d < 4; ++d) {
    if (arena_.kind(sizes[d]) == sym::Kind::Symbol)
      symbols_[sizes[d].id] = {name_of(std::string(arena_.symbol_name(sizes[d])))};
    if (arena_.is_const(sizes[d], 1)) continue;
    BRAZE_CHECK(axis < nest_.outer.size() && nest_.outer[axis].extent == sizes[d], "scores over other axes");
    unsigned dims = d == 2 ? kFirst : d == 3 ? kSecond : 0;
    symbols_[nest_.outer[axis++].var.id] = {name_of(names.axes[d]), dims};
  }
  for (uint32_t b = 0; b < program_.buffers.size(); ++b) {
    const loop::Buffer& buffer = program_.buffers[BufferId(b)];
    if (buffer.kind == BufferKind::Input && buffer.input >= names.values.size())
      names_of_buffers_[b] = names.pointers.at(buffer.input - names.values.size());
  }
  prefix_ = names.prefix;
  quick_ = true;
  PointText out;
  for (const LoopOp& op : stage.ops) {
    if (op.code == OpCode::Load && given(op)) {
      Val v{names.values[program_.buffers[op.buffer].input], kFirst | kSecond, program_.buffers[op.buffer].dtype};
      values_[op.result.index] = {cast(v, op.dtype), v.dims, op.dtype};
    } else if (op.code == OpCode::Store) {
      out.result = cast(values_[op.args[0].index], program_.buffers[op.buffer].dtype);
    } else {
      emit_op(op);
    }
  }
  for (size_t at = 0; at < body_.size();) {
    size_t end = body_.find('\n', at);
    out.lines.push_back(body_.substr(at, end - at));
    at = end + 1;
  }
  helpers.insert(helpers_.begin(), helpers_.end());
  return out;
}

PointText print_point(const loop::Program& program, const std::array<Expr, 4>& sizes, const PointNames& names, int sm,
                      std::set<std::string>& helpers) {
  const Nest* nest = program.items.size() == 1 ? std::get_if<Nest>(&program.items[0]) : nullptr;
  if (!nest) throw Inexpressible("a function of attention's scores that takes several kernels");
  Signature signature;
  Blocks blocks;
  blocks.way = Blocks::Way::Tiles;
  return Printer(program, *nest, signature, blocks, sm).point(sizes, names, helpers);
}

}  // namespace braze::codegen::triton
