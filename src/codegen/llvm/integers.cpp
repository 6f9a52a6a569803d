#include "codegen/llvm/integers.h"

#include <algorithm>

#include "base/check.h"

namespace braze::codegen::ir {

using llvm::Value;
using sym::Expr;
using sym::Kind;

Value* combine_integers(VectorBuilder& b, const sym::ExprArena& arena, Expr e,
                        const std::function<Value*(Expr)>& value) {
  auto& B = b.B;
  auto ops = arena.operands(e);
  auto fold = [&](auto f) {
    Value* acc = value(ops[0]);
    for (size_t i = 1; i < ops.size(); ++i) acc = f(acc, value(ops[i]));
    return acc;
  };
  auto compare = [&](llvm::CmpInst::Predicate p) {
    Value *x = value(ops[0]), *y = value(ops[1]);
    return B.CreateZExt(B.CreateICmp(p, x, y), x->getType());
  };
  switch (arena.kind(e)) {
    case Kind::FloorDiv:
    case Kind::Mod: {
      bool div = arena.kind(e) == Kind::FloorDiv;
      Value *x = value(ops[0]), *d = value(ops[1]);
      if (!llvm::isa<llvm::Constant>(d)) d = B.CreateSelect(B.CreateICmpEQ(d, b.integer(d, 0)), b.integer(d, 1), d);
      // A vector's remainder has no instruction: by way of the quotient.
      bool vector = VectorBuilder::is_vector(x);
      if (arena.range(ops[0]).lo >= 0 && arena.range(ops[1]).lo >= 0) {
        if (!div && !vector) return B.CreateURem(x, d);
        Value* q = B.CreateUDiv(x, d);
        return div ? q : B.CreateSub(x, B.CreateMul(q, d));
      }
      Value* q = B.CreateSDiv(x, d);
      Value* r = vector ? B.CreateSub(x, B.CreateMul(q, d)) : B.CreateSRem(x, d);
      Value* down =
          B.CreateAnd(B.CreateICmpNE(r, b.integer(r, 0)), B.CreateICmpSLT(B.CreateXor(r, d), b.integer(r, 0)));
      return div ? B.CreateSub(q, B.CreateZExt(down, q->getType())) : B.CreateSelect(down, B.CreateAdd(r, d), r);
    }
    case Kind::Min: return fold([&](Value* x, Value* y) { return B.CreateSelect(B.CreateICmpSLT(x, y), x, y); });
    case Kind::Max: return fold([&](Value* x, Value* y) { return B.CreateSelect(B.CreateICmpSGT(x, y), x, y); });
    case Kind::Eq: return compare(llvm::CmpInst::ICMP_EQ);
    case Kind::Ne: return compare(llvm::CmpInst::ICMP_NE);
    case Kind::Lt: return compare(llvm::CmpInst::ICMP_SLT);
    case Kind::Le: return compare(llvm::CmpInst::ICMP_SLE);
    case Kind::And: return fold([&](Value* x, Value* y) { return B.CreateAnd(x, y); });
    case Kind::Or: return fold([&](Value* x, Value* y) { return B.CreateOr(x, y); });
    case Kind::Not: {
      Value* x = value(ops[0]);
      return B.CreateXor(x, b.integer(x, 1));
    }
    default: throw InternalError("no such expression");
  }
}

// What e is in one lane, of a block of which nothing is known.
static Expr in_lane(sym::ExprArena& arena, Expr e, const LaneFacts& facts, int lane) {
  auto block = arena.find_symbol("$lane_block");
  if (!block) block = arena.symbol("$lane_block", sym::SymbolKind::LoopVar, {0, INT64_MAX});
  Expr start = arena.mul(*block, arena.constant(facts.start));
  std::pair<Expr, Expr> to[] = {{*facts.var, arena.add(start, arena.constant(lane))}};
  return arena.substitute(e, to);
}

bool aligned_at_first_lane(sym::ExprArena& arena, Expr e, const LaneFacts& facts, int64_t divisor) {
  if (divisor == 1) return true;
  if (facts.start % divisor && divisor % facts.start) return false;
  if (!facts.var || !arena.contains(e, *facts.var)) return arena.known_multiple(e, divisor);
  return arena.known_multiple(in_lane(arena, e, facts, 0), divisor);
}

std::vector<int64_t> lane_offsets(sym::ExprArena& arena, Expr e, const LaneFacts& facts) {
  if (!facts.var || !arena.contains(e, *facts.var)) return {};
  std::function<bool(Expr)> others_stay = [&](Expr part) {
    if (part == *facts.var || !facts.varies(part)) return true;
    if (arena.kind(part) == Kind::Symbol) return facts.step_of_symbol(part) == 0;
    auto ops = arena.operands(part);
    return std::all_of(ops.begin(), ops.end(), others_stay);
  };
  if (!others_stay(e)) return {};
  std::vector<int64_t> out{0};
  const Expr first = in_lane(arena, e, facts, 0);
  for (int l = 1; l < facts.lanes; ++l) {
    auto distance = arena.as_const(arena.sub(in_lane(arena, e, facts, l), first));
    if (!distance || *distance < out.back()) return {};
    out.push_back(*distance);
  }
  return out;
}

std::optional<int64_t> lane_step(sym::ExprArena& arena, Expr e, const LaneFacts& facts) {
  if (!facts.varies(e)) return 0;
  auto ops = arena.operands(e);
  switch (arena.kind(e)) {
    case Kind::Symbol: return facts.var && *facts.var == e ? 1 : facts.step_of_symbol(e);
    case Kind::Add: {
      int64_t sum = 0;
      for (Expr o : ops) {
        auto s = lane_step(arena, o, facts);
        if (!s) return std::nullopt;
        sum += *s;
      }
      return sum;
    }
    case Kind::Mul: {
      int64_t factor = 1, step = 0;
      bool known = true;  // what the moving operand is multiplied by
      int moving = 0;
      for (Expr o : ops) {
        auto s = lane_step(arena, o, facts);
        if (!s) return std::nullopt;
        if (*s != 0) {
          step = *s;
          ++moving;
        } else if (auto c = arena.as_const(o)) {
          factor *= *c;
        } else {
          known = false;
        }
      }
      if (moving == 0) return 0;
      if (moving > 1 || !known) return std::nullopt;
      return factor * step;
    }
    case Kind::FloorDiv:
    case Kind::Mod: {
      // The lanes a0 + s*l, l < W, stay within one block of d if a0 is a multiple of s*W and so is d.
      auto d = arena.as_const(ops[1]);
      auto s = lane_step(arena, ops[0], facts);
      if (s && *s == 0 && d) return 0;
      if (!d || *d <= 0 || !s || *s < 0) return std::nullopt;
      int64_t reach = *s * facts.lanes;
      if (*d % reach || !aligned_at_first_lane(arena, ops[0], facts, reach)) return std::nullopt;
      return arena.kind(e) == Kind::Mod ? *s : 0;
    }
    default: {
      for (Expr o : ops)
        if (lane_step(arena, o, facts) != 0) return std::nullopt;
      return 0;
    }
  }
}

LaneSlope lane_slope(sym::ExprArena& arena, Expr e, const LaneFacts& facts, int64_t step) {
  if (auto s = lane_step(arena, e, facts)) return {*s <= step, *s >= -step};
  auto ops = arena.operands(e);
  switch (arena.kind(e)) {
    case Kind::Add:
    case Kind::Mul: {
      const bool sum = arena.kind(e) == Kind::Add;
      std::optional<LaneSlope> moving;
      int64_t factor = 1;
      for (Expr o : ops) {
        if (lane_step(arena, o, facts) != 0) {
          if (moving) return {};
          moving = lane_slope(arena, o, facts, step);
        } else if (!sum) {
          factor *= arena.as_const(o).value_or(0);
        }
      }
      if (!moving || (factor != 1 && factor != -1)) return {};
      return factor == 1 ? *moving : LaneSlope{moving->down, moving->up};
    }
    case Kind::Min:
    case Kind::Max: {
      LaneSlope all{true, true};
      for (Expr o : ops) {
        LaneSlope s = lane_slope(arena, o, facts, step);
        all = {all.up && s.up, all.down && s.down};
      }
      return all;
    }
    case Kind::Mod: {
      auto s = lane_step(arena, ops[0], facts);
      if (!s || lane_step(arena, ops[1], facts) != 0 || arena.range(ops[1]).lo < 1) return {};
      return {*s >= 0 && *s <= step, *s <= 0 && *s >= -step};
    }
    default: return {};
  }
}

}  // namespace braze::codegen::ir
