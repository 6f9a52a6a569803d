// Index expressions: scalars in the loop where they belong, and what they are in the lanes of a vector.
#include "base/check.h"
#include "codegen/cpu/emitter.h"

namespace braze::codegen::cpu {

using sym::Kind;

int Emitter::depth_of(Expr e) {
  Kind kind = arena_.kind(e);
  if (kind == Kind::Const) return 0;
  if (kind == Kind::Symbol) {
    auto it = symbols_.find(e.id);
    return it == symbols_.end() ? 0 : it->second.second;
  }
  auto it = depths_.find(e.id);
  if (it != depths_.end()) return it->second;
  int depth = 0;
  for (Expr o : arena_.operands(e)) depth = std::max(depth, depth_of(o));
  return depths_[e.id] = depth;
}

void Emitter::bind(Expr symbol, Value* value, int depth) {
  Lanes lanes;
  lanes.v.push_back(value);
  lanes.depth = depth;
  lanes.dtype = DType::I64;
  symbols_[symbol.id] = {lanes, depth};
  depths_.clear();
  for (int d = depth; d <= top(); ++d) {
    // Rebinding (a remainder loop binds the variable anew) must not find what was made from the old value.
    std::erase_if(scopes_[d].exprs, [&](auto& kv) { return arena_.contains(Expr{kv.first}, symbol); });
    std::erase_if(scopes_[d].pointers, [&](auto& kv) { return arena_.contains(Expr{kv.first.second}, symbol); });
  }
}

Value* Emitter::emit(Expr e) {
  if (auto c = arena_.as_const(e)) return B.getInt64(static_cast<uint64_t>(*c));
  int depth = depth_of(e);
  if (arena_.kind(e) == Kind::Symbol) {
    auto it = symbols_.find(e.id);
    if (it != symbols_.end()) {
      BRAZE_CHECK(!it->second.first.vec, "a scalar of a symbol that differs between lanes");
      return it->second.first.v[0];
    }
  }
  auto it = scopes_[depth].exprs.find(e.id);
  if (it != scopes_[depth].exprs.end()) return it->second;
  Value* v = at_depth(depth, [&] { return emit_here(e); });
  scopes_[depth].exprs[e.id] = v;
  return v;
}

Value* Emitter::emit_here(Expr e) {
  auto ops = arena_.operands(e);
  auto fold = [&](auto f) {
    Value* acc = emit(ops[0]);
    for (size_t i = 1; i < ops.size(); ++i) acc = f(acc, emit(ops[i]));
    return acc;
  };
  auto as_int = [&](Value* c) { return B.CreateZExt(c, B.getInt64Ty()); };
  switch (arena_.kind(e)) {
    case Kind::Symbol: {  // a size: load it from the kernel's arguments
      for (size_t i = 0; i < signature_.sizes.size(); ++i)
        if (signature_.sizes[i] == e) return B.CreateLoad(B.getInt64Ty(), B.CreateConstInBoundsGEP1_64(B.getInt64Ty(), sizes_, i));
      throw InternalError("unbound symbol " + arena_.print(e));
    }
    case Kind::Add: {
      // Terms of outer loops first, so that their sum is made there.
      int depth = depth_of(e);
      std::vector<Expr> outer, inner;
      for (Expr o : ops) (depth_of(o) < depth ? outer : inner).push_back(o);
      Value* acc = outer.empty() ? nullptr : emit(arena_.sum(outer));
      for (Expr o : inner) acc = acc ? B.CreateAdd(acc, emit(o), "", false, true) : emit(o);
      return acc;
    }
    case Kind::Mul: {
      int depth = depth_of(e);
      std::vector<Expr> outer, inner;
      for (Expr o : ops) (depth_of(o) < depth ? outer : inner).push_back(o);
      Value* acc = outer.empty() ? nullptr : emit(arena_.product(outer));
      for (Expr o : inner) acc = acc ? B.CreateMul(acc, emit(o), "", false, true) : emit(o);
      return acc;
    }
    case Kind::FloorDiv:
    case Kind::Mod: {
      Value *a = emit(ops[0]), *d = emit(ops[1]);
      bool div = arena_.kind(e) == Kind::FloorDiv;
      if (!llvm::isa<llvm::ConstantInt>(d)) d = B.CreateSelect(B.CreateICmpEQ(d, B.getInt64(0)), B.getInt64(1), d);
      bool positive = arena_.range(ops[0]).lo >= 0 && arena_.range(ops[1]).lo >= 0;
      if (positive) return div ? B.CreateUDiv(a, d) : B.CreateURem(a, d);
      Value *q = B.CreateSDiv(a, d), *r = B.CreateSRem(a, d);
      Value* down = B.CreateAnd(B.CreateICmpNE(r, B.getInt64(0)), B.CreateICmpSLT(B.CreateXor(r, d), B.getInt64(0)));
      return div ? B.CreateSub(q, B.CreateZExt(down, B.getInt64Ty())) : B.CreateSelect(down, B.CreateAdd(r, d), r);
    }
    case Kind::Min: return fold([&](Value* a, Value* b) { return B.CreateSelect(B.CreateICmpSLT(a, b), a, b); });
    case Kind::Max: return fold([&](Value* a, Value* b) { return B.CreateSelect(B.CreateICmpSGT(a, b), a, b); });
    case Kind::Eq: return as_int(B.CreateICmpEQ(emit(ops[0]), emit(ops[1])));
    case Kind::Ne: return as_int(B.CreateICmpNE(emit(ops[0]), emit(ops[1])));
    case Kind::Lt: return as_int(B.CreateICmpSLT(emit(ops[0]), emit(ops[1])));
    case Kind::Le: return as_int(B.CreateICmpSLE(emit(ops[0]), emit(ops[1])));
    case Kind::And: return fold([&](Value* a, Value* b) { return B.CreateAnd(a, b); });
    case Kind::Or: return fold([&](Value* a, Value* b) { return B.CreateOr(a, b); });
    case Kind::Not: return B.CreateXor(emit(ops[0]), B.getInt64(1));
    case Kind::Const: break;
  }
  throw InternalError("no such expression");
}

bool Emitter::varies(Expr e) {
  if (width_ == 1) return false;
  Kind kind = arena_.kind(e);
  if (kind == Kind::Const) return false;
  if (kind == Kind::Symbol) {
    if (vector_.var && *vector_.var == e) return true;
    if (vector_.rows && *vector_.rows == e && vector_.copies > 1) return true;
    auto it = symbols_.find(e.id);
    return it != symbols_.end() && it->second.first.vec;
  }
  for (Expr o : arena_.operands(e))
    if (varies(o)) return true;
  return false;
}

// The vectorised variable is a multiple of the width at lane 0: it starts at 0 or at a multiple of the block.
bool Emitter::aligned(Expr e, int64_t divisor) {
  if (divisor == 1) return true;
  if (width_ % divisor && divisor % width_) return false;
  if (!vector_.var || !arena_.contains(e, *vector_.var)) return arena_.known_multiple(e, divisor);
  auto block = arena_.find_symbol("$lane_block");
  if (!block) block = arena_.symbol("$lane_block", sym::SymbolKind::LoopVar, {0, INT64_MAX});
  std::pair<Expr, Expr> to[] = {{*vector_.var, arena_.mul(*block, arena_.constant(width_))}};
  return arena_.known_multiple(arena_.substitute(e, to), divisor);
}

std::optional<int64_t> Emitter::lane_step(Expr e) {
  if (!varies(e)) return 0;
  auto ops = arena_.operands(e);
  switch (arena_.kind(e)) {
    case Kind::Symbol:
      if (vector_.var && *vector_.var == e) return 1;
      if (vector_.rows && *vector_.rows == e) return 0;  // differs between copies only
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
      int varying = 0;
      for (Expr o : ops) {
        if (varies(o)) {
          auto s = lane_step(o);
          if (!s || ++varying > 1) return std::nullopt;
          step = *s;
        } else if (auto c = arena_.as_const(o)) {
          factor *= *c;
        } else {
          factor = 0;  // a symbolic stride
        }
      }
      if (step == 0) return 0;
      return factor ? std::optional<int64_t>(factor * step) : std::nullopt;
    }
    case Kind::FloorDiv:
    case Kind::Mod: {
      auto d = arena_.as_const(ops[1]);
      auto s = lane_step(ops[0]);
      if (!d || *d <= 0 || !s || *s < 0) return std::nullopt;
      // The lanes a0 + s*l, l < W, stay within one block of d if a0 is a multiple of s*W and so is d.
      int64_t reach = *s == 0 ? 1 : *s * width_;
      if (*s == 0) return 0;
      if (*d % reach || !aligned(ops[0], reach)) return std::nullopt;
      return arena_.kind(e) == Kind::Mod ? *s : 0;
    }
    default: return std::nullopt;
  }
}

Expr Emitter::at_copy(Expr e, int copy) {
  if (copy == 0 || !vector_.var) return e;
  Expr var = vector_.rows ? *vector_.rows : *vector_.var;
  if (!arena_.contains(e, var)) return e;
  std::pair<Expr, Expr> to[] = {{var, arena_.add(var, arena_.constant(vector_.rows ? copy : static_cast<int64_t>(copy) * width_))}};
  return arena_.substitute(e, to);
}

bool Emitter::fits_i32(Expr e) const {
  if (arena_.kind(e) == Kind::Symbol && symbols_.contains(e.id) && symbols_.at(e.id).first.vec) {
    sym::Range r = arena_.range(e);
    return r.lo >= INT32_MIN && r.hi <= INT32_MAX;
  }
  sym::Range r = arena_.range(e);
  // Room for a vector beyond the end, whose lanes are masked.
  if (r.lo < INT32_MIN / 2 || r.hi > INT32_MAX / 2) return false;
  for (Expr o : arena_.operands(e))
    if (!fits_i32(o)) return false;
  return true;
}

Value* Emitter::lane_values(Expr e, int copy) { return lane_values_as(e, copy, fits_i32(e) ? B.getInt32Ty() : B.getInt64Ty()); }

Value* Emitter::lane_values_as(Expr e, int copy, Type* element) {
  auto spread = [&](Value* scalar) {
    return vb_.splat(element->isIntegerTy(64) ? scalar : B.CreateTrunc(scalar, element), width_);
  };
  if (!varies(e)) return spread(emit(e));
  if (auto step = lane_step(e)) {
    // The part at lane 0, then the ramp.
    Value* first = spread(emit(at_copy(e, copy)));
    if (*step == 0) return first;
    Value* ramp = B.CreateMul(vb_.iota(element, width_), vb_.integer(first, *step));
    return B.CreateAdd(first, ramp);
  }
  if (arena_.kind(e) == Kind::Symbol) {
    Lanes& s = symbols_.at(e.id).first;
    return B.CreateSExtOrTrunc(s.v[s.v.size() > 1 ? copy : 0], VectorBuilder::vector(element, width_));
  }
  auto ops = arena_.operands(e);
  auto sub = [&](Expr o) { return lane_values_as(o, copy, element); };
  auto fold = [&](auto f) {
    Value* acc = sub(ops[0]);
    for (size_t i = 1; i < ops.size(); ++i) acc = f(acc, sub(ops[i]));
    return acc;
  };
  auto as_int = [&](Value* c) { return B.CreateZExt(c, VectorBuilder::vector(element, width_)); };
  switch (arena_.kind(e)) {
    case Kind::Add: return fold([&](Value* a, Value* b) { return B.CreateAdd(a, b); });
    case Kind::Mul: return fold([&](Value* a, Value* b) { return B.CreateMul(a, b); });
    case Kind::FloorDiv:
    case Kind::Mod: {
      bool div = arena_.kind(e) == Kind::FloorDiv;
      Value *a = sub(ops[0]), *d = sub(ops[1]);
      if (!llvm::isa<llvm::Constant>(d)) d = B.CreateSelect(B.CreateICmpEQ(d, vb_.integer(d, 0)), vb_.integer(d, 1), d);
      bool positive = arena_.range(ops[0]).lo >= 0 && arena_.range(ops[1]).lo >= 0;
      if (positive) {
        Value* q = B.CreateUDiv(a, d);
        return div ? q : B.CreateSub(a, B.CreateMul(q, d));
      }
      Value* q = B.CreateSDiv(a, d);
      Value* r = B.CreateSub(a, B.CreateMul(q, d));
      Value* down = B.CreateAnd(B.CreateICmpNE(r, vb_.integer(r, 0)), B.CreateICmpSLT(B.CreateXor(r, d), vb_.integer(r, 0)));
      return div ? B.CreateSub(q, B.CreateZExt(down, q->getType())) : B.CreateSelect(down, B.CreateAdd(r, d), r);
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
    default: throw InternalError("no such expression in lanes");
  }
}

}  // namespace braze::codegen::cpu
