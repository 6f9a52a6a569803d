#include "lower/body.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/hash.h"
#include "lower/indexing.h"

namespace braze::lower {

namespace {

uint64_t key_of(const loop::LoopOp& op) {
  Hasher h;
  h.add(op.code);
  h.add(op.dtype);
  for (ValId a : op.args) h.add(a.index);
  h.add(op.buffer.index);
  h.add(op.index.id);
  h.add(op.integer);
  h.add(op.reduce);
  h.add(op.bound.id);
  return h.value();
}

bool same(const loop::LoopOp& a, const loop::LoopOp& b) {
  return a.code == b.code && a.dtype == b.dtype && a.args == b.args && a.buffer == b.buffer && a.index == b.index &&
         a.integer == b.integer && a.reduce == b.reduce && a.bound == b.bound;
}

uint64_t key_of(uint32_t value, std::span<const Expr> index) {
  Hasher h;
  h.add(value);
  for (Expr e : index) h.add(e.id);
  return h.value();
}

bool is_float(DType t) { return is_floating(t); }

int64_t wrap(int64_t v, DType t) {  // C++ conversion of an integer constant
  switch (t) {
    case DType::Bool: return v != 0;
    case DType::U8: return static_cast<uint8_t>(v);
    case DType::I8: return static_cast<int8_t>(v);
    case DType::I16: return static_cast<int16_t>(v);
    case DType::I32: return static_cast<int32_t>(v);
    default: return v;
  }
}

}  // namespace

Body::Body(sym::ExprArena& arena, Symbols& symbols, const Store<BufferId, loop::Buffer>& buffers, bool float8_saturates)
    : arena_(arena), symbols_(symbols), buffers_(buffers), float8_saturates_(float8_saturates) {}

ValId Body::append(loop::LoopOp op) {
  uint64_t key = key_of(op);
  auto& ops = nest_.stages.back().ops;
  auto [lo, hi] = by_hash_.equal_range(key);
  for (auto it = lo; it != hi; ++it)
    if (same(ops[it->second], op)) return ops[it->second].result;
  op.result = ValId(dtypes_.size());
  dtypes_.push_back(op.dtype);
  by_hash_.emplace(key, static_cast<uint32_t>(ops.size()));
  ops.push_back(op);
  return op.result;
}

const Expr* Body::expr_of(ValId v) const {
  auto it = exprs_.find(v.index);
  return it == exprs_.end() ? nullptr : &it->second;
}

ValId Body::fold(OpCode code, ValId a, ValId b) {
  const Expr *x = expr_of(a), *y = b.valid() ? expr_of(b) : nullptr;
  if (!x || !y) return {};
  switch (code) {
    case OpCode::Add: return index(arena_.add(*x, *y), DType::I64);
    case OpCode::Sub: return index(arena_.sub(*x, *y), DType::I64);
    case OpCode::Mul: {
      // Positions times small numbers do not wrap; products of others might.
      auto small = [&](Expr e) {
        auto c = arena_.as_const(e);
        return c && std::abs(*c) < int64_t{1} << 31;
      };
      return small(*x) || small(*y) ? index(arena_.mul(*x, *y), DType::I64) : ValId{};
    }
    default: return {};
  }
}

ValId Body::op(OpCode code, DType dtype, ValId a, ValId b, ValId c) {
  if (dtype == DType::I64 && !c.valid())
    if (ValId folded = fold(code, a, b); folded.valid()) return folded;
  loop::LoopOp o;
  o.code = code;
  o.dtype = dtype;
  o.args = {a, b, c};
  return append(o);
}

ValId Body::load(BufferId buffer, Expr index) {
  loop::LoopOp o;
  o.code = OpCode::Load;
  o.dtype = buffers_[buffer].dtype;
  o.buffer = buffer;
  o.index = index;
  return append(o);
}

void Body::store(BufferId buffer, Expr index, ValId value, bool accumulate) {
  loop::LoopOp o;
  o.code = OpCode::Store;
  o.dtype = buffers_[buffer].dtype;
  o.args[0] = cast(value, o.dtype);
  o.buffer = buffer;
  o.index = index;
  o.atomic_add = accumulate;
  nest_.stages.back().ops.push_back(o);
}

ValId Body::constant(double value, DType dtype) {
  if (!is_float(dtype))
    return constant(dtype == DType::Bool ? int64_t{value != 0} : static_cast<int64_t>(value), dtype);
  loop::LoopOp o;
  o.code = OpCode::Const;
  o.dtype = dtype;
  o.number = dtype == DType::F32 ? static_cast<double>(static_cast<float>(value)) : value;
  return append(o);
}

ValId Body::constant(int64_t value, DType dtype) {
  if (is_float(dtype)) return constant(static_cast<double>(value), dtype);
  loop::LoopOp o;
  o.code = OpCode::Const;
  o.dtype = dtype;
  o.integer = wrap(value, dtype);
  ValId v = append(o);
  if (dtype == DType::I64) exprs_.emplace(v.index, arena_.constant(value));
  return v;
}

ValId Body::index(Expr e, DType dtype) {
  if (auto c = arena_.as_const(e)) return constant(*c, dtype);
  loop::LoopOp o;
  o.code = OpCode::Index;
  o.dtype = DType::I64;
  o.index = e;
  ValId v = append(o);
  exprs_.emplace(v.index, e);
  return cast(v, dtype);
}

const loop::LoopOp* Body::made_here(ValId v) const {
  const auto& ops = nest_.stages.back().ops;
  auto made = std::find_if(ops.rbegin(), ops.rend(), [&](const loop::LoopOp& o) { return o.result == v; });
  return made == ops.rend() ? nullptr : &*made;
}

ValId Body::cast(ValId v, DType dtype) {
  if (this->dtype(v) == dtype) return v;
  if (dtype != DType::F8E4M3 || float8_saturates_) return op(OpCode::Cast, dtype, v);
  if (const auto* made = made_here(v); made && made->code == OpCode::Cast && this->dtype(made->args[0]) == dtype)
    return made->args[0];
  constexpr double kLast = 464;  // that rounds to the greatest number
  ValId x = cast(v, DType::F32);
  ValId beyond = op(OpCode::Gt, DType::Bool, op(OpCode::Abs, DType::F32, x), constant(kLast, DType::F32));
  ValId nan = op(OpCode::Copysign, DType::F32, constant(NAN, DType::F32), x);
  return op(OpCode::Cast, dtype, op(OpCode::Where, DType::F32, beyond, nan, x));
}

ValId Body::rounded(ValId v, DType half) {
  const auto* made = made_here(v);
  if (made && made->code == OpCode::Cast && this->dtype(made->args[0]) == half) return v;
  return cast(cast(v, half), this->dtype(v));
}

ValId Body::bitcast(ValId v, DType dtype) { return this->dtype(v) == dtype ? v : op(OpCode::Bitcast, dtype, v); }

Expr Body::indirect(ValId v, Expr bound, loop::IndexCheck check) {
  if (const Expr* e = expr_of(v); e && Indexing(arena_, symbols_).below(*e, bound)) return *e;
  if (used_.valid()) {
    v = op(OpCode::Where, dtype(v), used_, v, constant(int64_t{0}, dtype(v)));
    bound = arena_.max(bound, arena_.constant(1));
  }
  auto& ops = nest_.stages.back().ops;
  for (const loop::LoopOp& o : ops)
    if (o.code == OpCode::Indirect && o.args[0] == v && o.bound == bound && o.check == check) return o.index;
  loop::LoopOp o;
  o.code = OpCode::Indirect;
  o.dtype = DType::I64;
  o.args[0] = v;
  o.index = symbols_.indirect(indirects_++, bound);
  o.bound = bound;
  o.check = check;
  ops.push_back(o);
  return o.index;
}

ValId Body::reduce(ReduceKind kind, DType dtype, ValId v) {
  loop::LoopOp o;
  o.code = OpCode::Reduce;
  o.dtype = dtype;
  o.args[0] = v;
  o.reduce = kind;
  return append(o);
}

ValId Body::scan(ReduceKind kind, ValId v) {
  loop::LoopOp o;
  o.code = OpCode::Scan;
  o.dtype = dtype(v);
  o.args[0] = v;
  o.reduce = kind;
  return append(o);
}

void Body::begin_stage(std::vector<loop::Axis> axes) {
  nest_.stages.emplace_back();
  nest_.stages.back().axes = std::move(axes);
  by_hash_.clear();
  seen_.clear();
}

ValId Body::remembered(uint32_t value, std::span<const Expr> index) const {
  auto [lo, hi] = seen_.equal_range(key_of(value, index));
  for (auto it = lo; it != hi; ++it)
    if (it->second.value == value &&
        std::equal(index.begin(), index.end(), it->second.index.begin(), it->second.index.end()))
      return it->second.result;
  return {};
}

void Body::remember(uint32_t value, std::span<const Expr> index, ValId v) {
  seen_.emplace(key_of(value, index), Seen{value, {index.begin(), index.end()}, v});
}

// Drops what nobody uses and renumbers the rest. Indirect ops stay: they check their values.
void Body::drop_unused() {
  std::vector<bool> used(dtypes_.size(), false);
  for (auto stage = nest_.stages.rbegin(); stage != nest_.stages.rend(); ++stage) {
    std::vector<loop::LoopOp> kept;
    for (auto op = stage->ops.rbegin(); op != stage->ops.rend(); ++op) {
      if (op->result.valid() && !used[op->result.index]) continue;
      for (ValId a : op->args)
        if (a.valid()) used[a.index] = true;
      kept.push_back(*op);
    }
    stage->ops.assign(kept.rbegin(), kept.rend());
  }
  std::vector<ValId> number(dtypes_.size());
  uint32_t next = 0;
  for (loop::Stage& stage : nest_.stages)
    for (loop::LoopOp& op : stage.ops) {
      for (ValId& a : op.args)
        if (a.valid()) a = number[a.index];
      if (op.result.valid()) op.result = number[op.result.index] = ValId(next++);
    }
  nest_.values = next;
}

loop::Nest Body::finish(std::string name, std::vector<loop::Axis> outer) {
  nest_.name = std::move(name);
  nest_.outer = std::move(outer);
  drop_unused();
  return std::move(nest_);
}

const Expr* Symbols::extent_of(Expr symbol) const {
  auto it = extents_.find(symbol.id);
  return it == extents_.end() ? nullptr : &it->second;
}

Expr Symbols::make(char prefix, int position, Expr extent, sym::SymbolKind kind) {
  Expr s = arena_.positional_symbol(prefix, static_cast<size_t>(position), extent, kind);
  extents_.emplace(s.id, extent);
  return s;
}

}  // namespace braze::lower
