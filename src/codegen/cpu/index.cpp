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
  switch (arena_.kind(e)) {
    case Kind::Symbol: {  // a size: load it from the kernel's arguments
      for (size_t i = 0; i < signature_.sizes.size(); ++i)
        if (signature_.sizes[i] == e)
          return B.CreateLoad(B.getInt64Ty(), B.CreateConstInBoundsGEP1_64(B.getInt64Ty(), sizes_, i));
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
    default: return combine_integers(vb_, arena_, e, [&](Expr o) { return emit(o); });
  }
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

LaneFacts Emitter::lane_facts() {
  // Rows differ between copies only.
  auto step = [this](Expr symbol) {
    return vector_.rows && *vector_.rows == symbol ? std::optional<int64_t>(0) : std::nullopt;
  };
  return {vector_.var, width_, vector_.anywhere ? 1 : width_, [this](Expr e) { return varies(e); }, step};
}

bool Emitter::aligned(Expr e, int64_t divisor) { return aligned_at_first_lane(arena_, e, lane_facts(), divisor); }

std::optional<int64_t> Emitter::lane_step(Expr e) { return ir::lane_step(arena_, e, lane_facts()); }

Expr Emitter::at_copy(Expr e, int copy) {
  if (copy == 0 || !vector_.var) return e;
  const int vectors = vector_.rows ? vector_.columns : vector_.copies;
  llvm::SmallVector<std::pair<Expr, Expr>, 2> to;
  auto move = [&](Expr var, int64_t by) {
    if (by && arena_.contains(e, var)) to.emplace_back(var, arena_.add(var, arena_.constant(by)));
  };
  if (vector_.rows) move(*vector_.rows, copy / vectors * vector_.rows_apart);
  move(*vector_.var, (vector_.apart ? vector_.apart : width_) * (copy % vectors));
  return to.empty() ? e : arena_.substitute(e, to);
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

Value* Emitter::lane_values(Expr e, int copy) {
  return lane_values_as(e, copy, fits_i32(e) ? B.getInt32Ty() : B.getInt64Ty());
}

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
  switch (arena_.kind(e)) {
    case Kind::Add: return fold([&](Value* a, Value* b) { return B.CreateAdd(a, b); });
    case Kind::Mul: return fold([&](Value* a, Value* b) { return B.CreateMul(a, b); });
    default: return combine_integers(vb_, arena_, e, sub);
  }
}

}  // namespace braze::codegen::cpu
