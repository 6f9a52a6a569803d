// Index expressions: one value for all elements in flight or one for each, in 32 bits where the ranges allow.
#include "base/check.h"
#include "codegen/nvptx/emitter.h"

namespace braze::codegen::nvptx {

using sym::Kind;

Expr Emitter::fresh(const char* name, Expr extent) {
  std::string text = std::string("$") + name + std::to_string(positions_++) + "_" + std::to_string(extent.id);
  if (auto found = arena_.find_symbol(text)) return *found;
  sym::Range r = arena_.range(extent);
  return arena_.symbol(text, sym::SymbolKind::LoopVar, {0, std::max<int64_t>(0, r.hi == INT64_MAX ? INT64_MAX : r.hi - 1)});
}

void Emitter::bind(Expr symbol, Lanes value, bool same_in_lanes) {
  symbols_[symbol.id] = {std::move(value), same_in_lanes};
  varies_.clear();
  for (Scope& s : scopes_)
    std::erase_if(s.exprs, [&](auto& kv) { return arena_.contains(Expr{std::get<0>(kv.first)}, symbol); });
}

bool Emitter::varies(Expr e) {
  Kind kind = arena_.kind(e);
  if (kind == Kind::Const) return false;
  if (kind == Kind::Symbol) {
    auto it = symbols_.find(e.id);
    return it != symbols_.end() && !it->second.value.uniform();
  }
  if (auto it = varies_.find(e.id); it != varies_.end()) return it->second;
  bool v = false;
  for (Expr o : arena_.operands(e)) v = v || varies(o);
  return varies_[e.id] = v;
}

bool Emitter::fits_i32(Expr e) {
  sym::Range r = arena_.range(e);
  if (r.lo < INT32_MIN || r.hi > INT32_MAX) return false;
  if (arena_.kind(e) == Kind::Symbol || arena_.kind(e) == Kind::Const) return true;
  for (Expr o : arena_.operands(e))
    if (!fits_i32(o)) return false;
  return true;
}

Value* Emitter::emit(Expr e, int element, bool wide) {
  Type* type = wide ? vb_.i64() : vb_.i32();
  if (auto c = arena_.as_const(e)) return vb_.integer(type, *c);
  auto key = std::make_tuple(e.id, varies(e) ? element : -1, wide);
  for (size_t i = scopes_.size(); i-- > 0;)
    if (auto it = scopes_[i].exprs.find(key); it != scopes_[i].exprs.end()) return it->second;
  Value* v = emit_here(e, element, wide);
  scopes_.back().exprs[key] = v;
  return v;
}

Value* Emitter::emit_here(Expr e, int element, bool wide) {
  Type* type = wide ? vb_.i64() : vb_.i32();
  if (arena_.kind(e) == Kind::Symbol) {
    Value* v = nullptr;
    if (auto it = symbols_.find(e.id); it != symbols_.end()) v = it->second.value.at(element);
    else if (auto jt = sizes_.find(e.id); jt != sizes_.end()) v = jt->second;
    BRAZE_CHECK(v, "unbound symbol " + arena_.print(e));
    return B.CreateSExtOrTrunc(v, type);
  }
  // What fits 32 bits is computed there, also inside a wider sum.
  if (wide && fits_i32(e)) return B.CreateSExt(emit(e, element, false), type);
  auto ops = arena_.operands(e);
  auto sub = [&](Expr o) { return emit(o, element, wide); };
  auto fold = [&](auto f) {
    Value* acc = sub(ops[0]);
    for (size_t i = 1; i < ops.size(); ++i) acc = f(acc, sub(ops[i]));
    return acc;
  };
  auto as_int = [&](Value* c) { return B.CreateZExt(c, type); };
  // Terms that are the same for all elements first, so that they are emitted once.
  auto shared_first = [&](auto combine, auto f) {
    std::vector<Expr> shared, own;
    for (Expr o : ops) (varies(o) ? own : shared).push_back(o);
    if (shared.size() < 2 || own.empty()) return fold(f);
    Value* acc = emit(combine(shared), element, wide);
    for (Expr o : own) acc = f(acc, sub(o));
    return acc;
  };
  switch (arena_.kind(e)) {
    case Kind::Add:
      return shared_first([&](auto& l) { return arena_.sum(l); }, [&](Value* a, Value* b) { return B.CreateAdd(a, b, "", false, true); });
    case Kind::Mul:
      return shared_first([&](auto& l) { return arena_.product(l); }, [&](Value* a, Value* b) { return B.CreateMul(a, b, "", false, true); });
    case Kind::FloorDiv:
    case Kind::Mod: {
      Value *a = sub(ops[0]), *d = sub(ops[1]);
      bool div = arena_.kind(e) == Kind::FloorDiv;
      if (!llvm::isa<llvm::ConstantInt>(d)) d = B.CreateSelect(B.CreateICmpEQ(d, vb_.integer(d, 0)), vb_.integer(d, 1), d);
      bool positive = arena_.range(ops[0]).lo >= 0 && arena_.range(ops[1]).lo >= 0;
      if (positive) return div ? B.CreateUDiv(a, d) : B.CreateURem(a, d);
      Value *q = B.CreateSDiv(a, d), *r = B.CreateSRem(a, d);
      Value* down = B.CreateAnd(B.CreateICmpNE(r, vb_.integer(r, 0)), B.CreateICmpSLT(B.CreateXor(r, d), vb_.integer(r, 0)));
      return div ? B.CreateSub(q, as_int(down)) : B.CreateSelect(down, B.CreateAdd(r, d), r);
    }
    case Kind::Min: return fold([&](Value* a, Value* b) { return B.CreateSelect(B.CreateICmpSLT(a, b), a, b); });
    case Kind::Max: return fold([&](Value* a, Value* b) { return B.CreateSelect(B.CreateICmpSGT(a, b), a, b); });
    case Kind::Eq: return as_int(B.CreateICmpEQ(sub(ops[0]), sub(ops[1])));
    case Kind::Ne: return as_int(B.CreateICmpNE(sub(ops[0]), sub(ops[1])));
    case Kind::Lt: return as_int(B.CreateICmpSLT(sub(ops[0]), sub(ops[1])));
    case Kind::Le: return as_int(B.CreateICmpSLE(sub(ops[0]), sub(ops[1])));
    case Kind::And: return fold([&](Value* a, Value* b) { return B.CreateAnd(a, b); });
    case Kind::Or: return fold([&](Value* a, Value* b) { return B.CreateOr(a, b); });
    case Kind::Not: {
      Value* x = sub(ops[0]);
      return B.CreateXor(x, vb_.integer(x, 1));
    }
    default: throw InternalError("no such expression");
  }
}

// The lanes' variable is a multiple of their number at lane 0.
bool Emitter::aligned(Expr e, int64_t divisor) {
  if (divisor == 1) return true;
  if (flight_.lanes % divisor && divisor % flight_.lanes) return false;
  if (!flight_.var || !arena_.contains(e, *flight_.var)) return arena_.known_multiple(e, divisor);
  auto block = arena_.find_symbol("$lane_block");
  if (!block) block = arena_.symbol("$lane_block", sym::SymbolKind::LoopVar, {0, INT64_MAX});
  std::pair<Expr, Expr> to[] = {{*flight_.var, arena_.mul(*block, arena_.constant(flight_.lanes))}};
  return arena_.known_multiple(arena_.substitute(e, to), divisor);
}

std::optional<int64_t> Emitter::lane_step(Expr e) {
  if (!varies(e)) return 0;
  auto ops = arena_.operands(e);
  switch (arena_.kind(e)) {
    case Kind::Symbol:
      if (flight_.var && *flight_.var == e) return 1;
      if (auto it = symbols_.find(e.id); it != symbols_.end() && it->second.same_in_lanes) return 0;
      return std::nullopt;
    case Kind::Add: {
      int64_t sum = 0;
      for (Expr o : ops) {
        auto s = lane_step(o);
        if (!s) return std::nullopt;
        sum += *s;
      }
      return sum;
    }
    case Kind::Mul: {
      int64_t factor = 1, step = 0;
      bool known = true;
      int moving = 0;
      for (Expr o : ops) {
        auto s = lane_step(o);
        if (!s) return std::nullopt;
        if (*s != 0) {
          step = *s;
          ++moving;
        } else if (auto c = arena_.as_const(o)) {
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
      auto d = arena_.as_const(ops[1]);
      auto s = lane_step(ops[0]);
      if (s && *s == 0 && d) return 0;
      if (!d || *d <= 0 || !s || *s < 0) return std::nullopt;
      int64_t reach = *s * flight_.lanes;
      if (*d % reach || !aligned(ops[0], reach)) return std::nullopt;
      return arena_.kind(e) == Kind::Mod ? *s : 0;
    }
    default: {
      for (Expr o : ops)
        if (lane_step(o) != 0) return std::nullopt;
      return 0;
    }
  }
}

}  // namespace braze::codegen::nvptx
