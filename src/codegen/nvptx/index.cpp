// Index expressions: one value for all elements in flight or one for each, in 32 bits where the ranges allow.
#include "base/check.h"
#include "codegen/nvptx/emitter.h"

namespace braze::codegen::nvptx {

using sym::Kind;

Expr Emitter::fresh(const char* name, Expr extent) {
  std::string text = std::string("$") + name + std::to_string(positions_++) + "_" + std::to_string(extent.id);
  if (auto found = arena_.find_symbol(text)) return *found;
  sym::Range r = arena_.range(extent);
  return arena_.symbol(text, sym::SymbolKind::LoopVar,
                       {0, std::max<int64_t>(0, r.hi == INT64_MAX ? INT64_MAX : r.hi - 1)});
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
    if (auto it = symbols_.find(e.id); it != symbols_.end())
      v = it->second.value.at(element);
    else if (auto jt = sizes_.find(e.id); jt != sizes_.end())
      v = jt->second;
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
      return shared_first([&](auto& l) { return arena_.sum(l); },
                          [&](Value* a, Value* b) { return B.CreateAdd(a, b, "", false, true); });
    case Kind::Mul:
      return shared_first([&](auto& l) { return arena_.product(l); },
                          [&](Value* a, Value* b) { return B.CreateMul(a, b, "", false, true); });
    default: return combine_integers(vb_, arena_, e, sub);
  }
}

LaneFacts Emitter::lane_facts() {
  auto step = [this](Expr symbol) {
    auto it = symbols_.find(symbol.id);
    return it != symbols_.end() && it->second.same_in_lanes ? std::optional<int64_t>(0) : std::nullopt;
  };
  return {flight_.var, flight_.lanes, flight_.lanes, [this](Expr e) { return varies(e); }, step};
}

bool Emitter::aligned(Expr e, int64_t divisor) { return aligned_at_first_lane(arena_, e, lane_facts(), divisor); }

std::optional<int64_t> Emitter::lane_step(Expr e) { return ir::lane_step(arena_, e, lane_facts()); }

}  // namespace braze::codegen::nvptx
