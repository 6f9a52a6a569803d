#include "codegen/triton/tile.h"

#include <algorithm>

#include "base/check.h"
#include "codegen/triton/printer.h"
#include "schedule/index.h"

namespace braze::codegen::triton {

using loop::BufferKind;
using loop::OpCode;

namespace {

// One symbol for a place and an extent: terms are ordered by their symbols, and equal products are to have equal texts.
Expr position_along(sym::ExprArena& arena, size_t d, int64_t extent) {
  std::string name = "$p" + std::to_string(d) + "_" + std::to_string(extent);
  if (auto found = arena.find_symbol(name)) return *found;
  return arena.symbol(name, sym::SymbolKind::LoopVar, {0, extent - 1});
}

}  // namespace

std::optional<MatrixNest> over_matrix(const Program& program, const Nest& nest, const std::array<int64_t, 3>& extents) {
  sym::ExprArena& arena = *program.arena;
  if (nest.stages.size() != 1 || !nest.stages[0].axes.empty()) return std::nullopt;
  if (!arena.is_const(schedule::volume(arena, nest.outer), extents[0] * extents[1] * extents[2])) return std::nullopt;
  MatrixNest out{nest, arena.constant(0)};
  out.nest.outer.clear();
  for (size_t d = 0; d < 3; ++d) {
    Expr extent = arena.constant(extents[d]);
    Expr var = extents[d] == 1 ? arena.constant(0) : position_along(arena, d, extents[d]);
    out.nest.outer.push_back({var, extent});
    out.position = arena.add(arena.mul(out.position, extent), var);
  }
  std::vector<std::pair<Expr, Expr>> digits;
  Expr inner = arena.constant(1);
  for (size_t i = nest.outer.size(); i-- > 0;) {
    const loop::Axis& axis = nest.outer[i];
    if (!arena.as_const(axis.extent)) return std::nullopt;
    digits.emplace_back(axis.var, arena.mod(arena.floordiv(out.position, inner), axis.extent));
    inner = arena.mul(inner, axis.extent);
  }
  for (LoopOp& op : out.nest.stages[0].ops)
    if (op.code == OpCode::Load || op.code == OpCode::Store || op.code == OpCode::Index)
      op.index = arena.substitute(op.index, digits);
  return out;
}

TileText Printer::tile(const TileNames& names, std::set<std::string>& helpers) {
  const loop::Stage& stage = nest_.stages[0];
  stage_ = &stage;
  indent_ = 0;
  wide_ = needs_i64();
  quick_ = names.quick;
  prefix_ = names.prefix;
  first_mask_ = names.row_mask;
  second_mask_ = names.column_mask;
  for (size_t d = 0; d < 3; ++d) {
    if (arena_.as_const(nest_.outer[d].var)) continue;
    const auto& [name, along] = names.indices[d];
    symbols_[nest_.outer[d].var.id] = {wide_ ? name + ".to(tl.int64)" : name, static_cast<unsigned>(along)};
  }
  for (const auto& [buffer, name] : names.pointers) names_of_buffers_[buffer] = name;
  TileText out;
  for (const LoopOp& op : stage.ops) {
    if (op.code == OpCode::Load && names.given.contains(op.buffer.index)) {
      Val v{names.given.at(op.buffer.index), kFirst | kSecond, program_.buffers[op.buffer].dtype};
      values_[op.result.index] = {cast(v, op.dtype), v.dims, op.dtype};
    } else if (op.code == OpCode::Store && names.taken.contains(op.buffer.index)) {
      out.values[op.buffer.index] = cast(values_[op.args[0].index], program_.buffers[op.buffer].dtype);
    } else {
      BRAZE_CHECK((op.code != OpCode::Load && op.code != OpCode::Store) || names_of_buffers_.contains(op.buffer.index),
                  "a buffer that a kernel has no pointer to");
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

namespace {

const Blocks kTiles{.way = Blocks::Way::Tiles};

}  // namespace

TileText print_tile(const Program& program, const MatrixNest& nest, const TileNames& names, int sm,
                    std::set<std::string>& helpers) {
  Signature signature;
  return Printer(program, nest.nest, signature, kTiles, sm).tile(names, helpers);
}

bool is_wide(const Program& program, const MatrixNest& nest, int sm) {
  Signature signature;
  return Printer(program, nest.nest, signature, kTiles, sm).wide();
}

}  // namespace braze::codegen::triton
