// Index expressions, masks and shapes as text.
#include <algorithm>

#include "base/check.h"
#include "codegen/triton/printer.h"
#include "schedule/index.h"

namespace braze::codegen::triton {

using sym::Kind;

bool Printer::fits_i32(Expr e) {
  // Room for a block beyond the end.
  constexpr int64_t kMost = INT32_MAX - (1 << 16);
  sym::Range r = arena_.range(e);
  if (r.lo < INT32_MIN || r.hi > kMost) return false;
  if (arena_.kind(e) == Kind::Symbol || arena_.kind(e) == Kind::Const) return true;
  auto ops = arena_.operands(e);
  return std::all_of(ops.begin(), ops.end(), [&](Expr o) { return fits_i32(o); });
}

bool Printer::needs_i64() {
  if (!fits_i32(schedule::volume(arena_, nest_.outer))) return true;
  for (const loop::Stage& s : nest_.stages) {
    if (!fits_i32(schedule::volume(arena_, s.axes))) return true;
    for (const LoopOp& op : s.ops) {
      bool indexed = op.code == loop::OpCode::Load || op.code == loop::OpCode::Store || op.code == loop::OpCode::Index;
      if (indexed && !fits_i32(op.index)) return true;
      if (op.code == loop::OpCode::Indirect && !fits_i32(op.bound)) return true;
    }
  }
  return false;
}

std::string literal(int64_t value) { return value < 0 ? "(" + std::to_string(value) + ")" : std::to_string(value); }

Printer::Text Printer::index(Expr e) {
  if (auto c = arena_.as_const(e)) return {literal(*c)};
  if (arena_.kind(e) == Kind::Symbol) {
    auto it = symbols_.find(e.id);
    BRAZE_CHECK(it != symbols_.end(), "unbound symbol " + arena_.print(e));
    return it->second;
  }
  Text out;
  out.atom = false;
  auto operand = [&](Expr o) {
    Text t = index(o);
    out.dims |= t.dims;
    return t.atom ? t.s : "(" + t.s + ")";
  };
  auto ops = arena_.operands(e);
  auto join = [&](const char* op) {
    for (Expr o : ops) {
      // A sum of products needs no parentheses.
      if (arena_.kind(e) == Kind::Add && arena_.kind(o) == Kind::Mul) {
        Text t = index(o);
        out.dims |= t.dims;
        out.s += (out.s.empty() ? "" : op) + t.s;
      } else {
        out.s += (out.s.empty() ? "" : op) + operand(o);
      }
    }
    return out;
  };
  auto call = [&](const std::string& function) {  // of two operands at a time
    for (Expr o : ops) out.s = out.s.empty() ? operand(o) : function + "(" + out.s + ", " + operand(o) + ")";
    out.atom = true;
    return out;
  };
  auto compare = [&](const char* op) {
    out.s = "(" + operand(ops[0]) + op;
    out.s += operand(ops[1]) + ").to(" + index_type() + ")";
    out.atom = true;
    return out;
  };
  switch (arena_.kind(e)) {
    case Kind::Add: return join(" + ");
    case Kind::Mul: return join(" * ");
    case Kind::FloorDiv:
    case Kind::Mod: {
      bool div = arena_.kind(e) == Kind::FloorDiv;
      // Triton's division rounds to zero.
      if (arena_.range(ops[0]).lo >= 0 && arena_.range(ops[1]).lo >= 0) return join(div ? " // " : " % ");
      return call(helper(div ? "floor_div" : "floor_mod"));
    }
    case Kind::Min: return call("tl.minimum");
    case Kind::Max: return call("tl.maximum");
    case Kind::Eq: return compare(" == ");
    case Kind::Ne: return compare(" != ");
    case Kind::Lt: return compare(" < ");
    case Kind::Le: return compare(" <= ");
    case Kind::And: return join(" & ");
    case Kind::Or: return join(" | ");
    case Kind::Not: {
      out.s = "1 - " + operand(ops[0]);
      return out;
    }
    default: throw InternalError("no such expression");
  }
}

std::string Printer::mask(unsigned dims) const {
  std::string m;
  if (dims & kFirst) m = first_mask_;
  if (dims & kSecond && !second_mask_.empty()) m += (m.empty() ? "" : " & ") + second_mask_;
  return m;
}

unsigned Printer::all_dims() const {
  if (blocks_.way == Blocks::Way::Tiles || !stage_->axes.empty()) return kFirst | kSecond;
  return kFirst;
}

std::string Printer::shape() const {
  switch (blocks_.way) {
    case Blocks::Way::Points: return "[XBLOCK]";
    case Blocks::Way::Tiles: return "[YBLOCK, XBLOCK]";
    case Blocks::Way::Rows: break;
  }
  if (stage_->axes.empty()) return "[XBLOCK, 1]";
  return "[XBLOCK, " + std::to_string(stage_block(arena_, *stage_, blocks_).size) + "]";
}

std::string Printer::spread(const Text& t, const std::string& shape) const {
  bool number = t.s.find_first_not_of("0123456789()-") == std::string::npos;
  if (number) return "tl.full(" + shape + ", " + t.s + ", " + index_type() + ")";
  return "tl.zeros(" + shape + ", " + index_type() + ") + " + (t.atom ? t.s : "(" + t.s + ")");
}

std::string Printer::whole(const Text& t) const {
  return t.dims == all_dims() ? t.s : "tl.broadcast_to(" + t.s + ", " + shape() + ")";
}

}  // namespace braze::codegen::triton
