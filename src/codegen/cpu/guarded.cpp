// Loads whose value counts only where a condition holds, as around the edge of an image: their place is moved inside,
// so that any lane may load, but lanes that do not count need not load at all. Without that move they are neighbours.
#include "codegen/cpu/emitter.h"

namespace braze::codegen::cpu {

using loop::OpCode;
using loop::ValId;

const LoopOp* Emitter::made_by(ValId id) const {
  for (const loop::Stage& s : nest_.stages)
    for (const LoopOp& op : s.ops)
      if (op.result == id) return &op;
  return nullptr;
}

// The condition of the only op that takes what is loaded, perhaps cast: where(condition, value, something else). It is
// known before the load is emitted.
std::optional<ValId> Emitter::counts_where(const LoopOp& load) const {
  ValId id = load.result;
  const LoopOp* user = nullptr;
  do {
    user = nullptr;
    for (const loop::Stage& s : nest_.stages)
      for (const LoopOp& op : s.ops)
        for (ValId a : op.args)
          if (a == id) {
            if (user) return std::nullopt;
            user = &op;
          }
    if (!user) return std::nullopt;
    if (user->code == OpCode::Cast) id = user->result;
  } while (user->code == OpCode::Cast);
  if (user->code != OpCode::Where || user->args[1] != id) return std::nullopt;
  for (const loop::Stage& s : nest_.stages)
    for (const LoopOp& op : s.ops) {
      if (op.result == load.result) return std::nullopt;
      if (op.result == user->args[0]) return user->args[0];
    }
  return std::nullopt;
}

// Places that are known to be inside where the condition holds: (moved inside, as they are).
void Emitter::collect_inside(ValId condition, std::vector<std::pair<Expr, Expr>>& found) {
  const LoopOp* c = made_by(condition);
  if (!c) return;
  if (c->code != OpCode::And || c->dtype != DType::Bool) return;
  // (place >= 0) & (place < size), as lowering writes it, or more of these.
  const LoopOp *above = made_by(c->args[0]), *below = made_by(c->args[1]);
  auto place_of = [&](const LoopOp* compared, OpCode code) -> const LoopOp* {
    const LoopOp* place = compared && compared->code == code ? made_by(compared->args[0]) : nullptr;
    return place && place->code == OpCode::Index ? place : nullptr;
  };
  const LoopOp *low = place_of(above, OpCode::Ge), *high = place_of(below, OpCode::Lt);
  if (low && high && low->index == high->index) {
    const LoopOp *zero = made_by(above->args[1]), *size = made_by(below->args[1]);
    const bool from_zero = zero && zero->code == OpCode::Const && zero->integer == 0;
    std::optional<Expr> end;
    if (size && size->code == OpCode::Index) end = size->index;
    if (size && size->code == OpCode::Const && !is_floating(size->dtype)) end = arena_.constant(size->integer);
    if (!from_zero || !end) return;
    const Expr place = low->index, last = arena_.sub(*end, arena_.constant(1));
    const Expr moved = arena_.max(arena_.min(place, last), arena_.constant(0));
    if (moved != place) found.emplace_back(moved, place);
    return;
  }
  collect_inside(c->args[0], found);
  collect_inside(c->args[1], found);
}

std::optional<Emitter::Guarded> Emitter::guarded(const LoopOp& load) {
  auto condition = counts_where(load);
  if (!condition) return std::nullopt;
  std::vector<std::pair<Expr, Expr>> inside;
  collect_inside(*condition, inside);
  const Expr index = arena_.substitute(load.index, inside);
  if (index == load.index) return std::nullopt;
  return Guarded{*condition, index};
}

}  // namespace braze::codegen::cpu
