#include "schedule/clean.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/hash.h"
#include "loop/analysis.h"
#include "schedule/index.h"
#include "schedule/normalise.h"

namespace braze::schedule {
namespace {

using loop::arity;
using loop::BufferId;
using loop::BufferKind;
using loop::LoopOp;
using loop::Nest;
using loop::OpCode;
using loop::Program;
using loop::Stage;
using loop::ValId;

void indirect_symbols(const sym::ExprArena& arena, Expr e, std::vector<Expr>& into) {
  into.clear();
  arena.collect_symbols(e, into);
  std::erase_if(into, [&](Expr s) { return arena.symbol_kind(s) != sym::SymbolKind::Indirect; });
}

}  // namespace

// ---------------------------------------------------------------- merging
void merge_stages(sym::ExprArena& arena, Nest& n) {
  std::vector<Stage> done;
  std::vector<int> stage_of(n.values, -1);
  std::unordered_map<uint32_t, int> bound_in;  // Indirect symbol -> stage
  std::vector<Expr> symbols;
  for (Stage& t : n.stages) {
    int strict = -1, weak = -1;  // stages that must end before t, or may be t itself
    auto after = [&](int d, bool may_join) { (may_join ? weak : strict) = std::max(may_join ? weak : strict, d); };
    for (const LoopOp& op : t.ops) {
      for (int i = 0; i < arity(op.code); ++i) {
        int d = stage_of[op.args[static_cast<size_t>(i)].index];
        if (d >= 0) after(d, done[static_cast<size_t>(d)].axes.empty() && t.axes.empty());
      }
      if (has_index(op)) {
        indirect_symbols(arena, op.index, symbols);
        for (Expr s : symbols)
          if (auto it = bound_in.find(s.id); it != bound_in.end()) after(it->second, t.axes.empty());
      }
      if (op.code != OpCode::Load && op.code != OpCode::Store) continue;
      for (size_t d = 0; d < done.size(); ++d)
        for (const LoopOp& other : done[d].ops) {
          if ((other.code != OpCode::Store && (other.code != OpCode::Load || op.code != OpCode::Store)) ||
              other.buffer != op.buffer)
            continue;
          indirect_symbols(arena, op.index, symbols);
          bool same_point = other.index == op.index && symbols.empty() && !other.atomic_add && !op.atomic_add &&
                            same_axes(done[d].axes, t.axes);
          after(static_cast<int>(d), same_point);
        }
    }
    int at = -1;
    for (int k = std::max(strict + 1, std::max(weak, 0)); k < static_cast<int>(done.size()) && at < 0; ++k)
      if (same_axes(done[static_cast<size_t>(k)].axes, t.axes)) at = k;
    if (at < 0) {
      at = static_cast<int>(done.size());
      done.push_back({t.axes, {}});
    }
    for (const LoopOp& op : t.ops) {
      if (op.result.valid()) stage_of[op.result.index] = at;
      if (op.code == OpCode::Indirect) bound_in[op.index.id] = at;
      done[static_cast<size_t>(at)].ops.push_back(op);
    }
  }
  n.stages = std::move(done);
}

// ---------------------------------------------------------------- simplification
namespace {

struct OpKey {
  OpCode code;
  DType dtype;
  uint32_t a, b, c, buffer, index;
  int64_t bits;
  loop::ReduceKind reduce;
  friend bool operator==(const OpKey&, const OpKey&) = default;
};
struct OpKeyHash {
  size_t operator()(const OpKey& k) const {
    Hasher h;
    h.add(k.code);
    h.add(k.dtype);
    h.add((static_cast<uint64_t>(k.a) << 32) | k.b);
    h.add((static_cast<uint64_t>(k.c) << 32) | k.buffer);
    h.add(k.index);
    h.add(k.bits);
    h.add(k.reduce);
    return h.value();
  }
};

OpKey key_of(const LoopOp& op) {
  OpKey k{op.code, op.dtype, op.args[0].index, op.args[1].index, op.args[2].index, UINT32_MAX, 0, 0, op.reduce};
  if (op.code == OpCode::Load) k.buffer = op.buffer.index;
  if (has_index(op)) k.index = op.index.id;
  if (op.code == OpCode::Const) k.bits = op.integer;
  if (op.code == OpCode::Indirect) {
    k.index = op.bound.id;
    k.bits = static_cast<int64_t>(op.check.fault) << 16 | op.check.dim << 1 | op.check.wrap;
  }
  if (!loop::accumulates(op.code)) k.reduce = {};
  return k;
}

class Simplifier {
 public:
  Simplifier(const Program& p, Nest& n, const std::vector<char>& priv)
      : arena_(*p.arena), p_(p), n_(n), private_(priv) {}

  void run() {
    share();
    drop_unused();
    renumber();
  }

 private:
  using Table = std::unordered_map<OpKey, ValId, OpKeyHash>;

  void share() {
    std::vector<ValId> same(n_.values);
    for (uint32_t i = 0; i < n_.values; ++i) same[i] = ValId(static_cast<size_t>(i));
    Table everywhere;  // of stages without axes
    std::unordered_map<OpKey, Expr, OpKeyHash> symbols_everywhere;
    Substitution symbols;
    for (Stage& s : n_.stages) {
      Table here;
      auto symbols_here = symbols_everywhere;
      Table& table = s.axes.empty() ? everywhere : here;
      std::vector<LoopOp> out;
      out.reserve(s.ops.size());
      for (LoopOp& op : s.ops) {
        for (int i = 0; i < arity(op.code); ++i) {
          ValId& v = op.args[static_cast<size_t>(i)];
          v = same[v.index];
        }
        if (!symbols.empty() && has_index(op)) op.index = arena_.substitute(op.index, symbols);
        if (op.code == OpCode::Store) {
          forget(everywhere, op.buffer);
          forget(here, op.buffer);
          if (!op.atomic_add) {
            LoopOp load = load_of(op);
            table[key_of(load)] = op.args[0];
            stored_.insert_or_assign(op.args[0].index, true);
          }
          out.push_back(op);
          continue;
        }
        if (ValId rounded = rounded_already(op); rounded.valid()) {
          same[op.result.index] = rounded;
          continue;
        }
        if (op.code == OpCode::Cast || op.code == OpCode::Load) rounded_.insert_or_assign(op.result.index, op);
        OpKey k = key_of(op);
        if (op.code == OpCode::Indirect) {
          auto [it, fresh] = symbols_here.emplace(k, op.index);
          if (s.axes.empty()) symbols_everywhere.emplace(k, op.index);
          if (fresh)
            out.push_back(op);
          else if (it->second != op.index)
            symbols.push_back({op.index, it->second});
          continue;
        }
        const Table::value_type* hit = nullptr;
        if (auto it = here.find(k); it != here.end())
          hit = &*it;
        else if (auto jt = everywhere.find(k); jt != everywhere.end() && !loop::accumulates(op.code))
          hit = &*jt;
        if (!hit) {
          table.emplace(k, op.result);
          out.push_back(op);
          continue;
        }
        if (op.code == OpCode::Load && is_rounded_float(op.dtype) && stored_.count(hit->second.index)) {
          // What was stored was rounded; the value is not.
          LoopOp cast;
          cast.code = OpCode::Cast;
          cast.dtype = op.dtype;
          cast.args[0] = hit->second;
          cast.result = op.result;
          OpKey ck = key_of(cast);
          auto [it, fresh] = table.emplace(ck, cast.result);
          if (fresh)
            out.push_back(cast);
          else
            same[op.result.index] = it->second;
          continue;
        }
        same[op.result.index] = hit->second;
      }
      s.ops = std::move(out);
    }
  }

  // A value of a type of few bits, read from memory or rounded, that was seen as f32 and is rounded back is that value.
  ValId rounded_already(const LoopOp& op) const {
    if (op.code != OpCode::Cast || !is_rounded_float(op.dtype)) return {};
    auto wide = rounded_.find(op.args[0].index);
    if (wide == rounded_.end() || wide->second.code != OpCode::Cast || wide->second.dtype != DType::F32) return {};
    auto half = rounded_.find(wide->second.args[0].index);
    return half != rounded_.end() && half->second.dtype == op.dtype ? half->second.result : ValId();
  }

  LoopOp load_of(const LoopOp& store) const {
    LoopOp load;
    load.code = OpCode::Load;
    load.dtype = p_.buffers[store.buffer].dtype;
    load.buffer = store.buffer;
    load.index = store.index;
    return load;
  }

  static void forget(Table& t, BufferId b) {
    std::erase_if(t, [&](const auto& e) { return e.first.code == OpCode::Load && e.first.buffer == b.index; });
  }

  void drop_unused() {
    std::vector<char> loaded(p_.buffers.size(), 0);
    std::vector<char> live(n_.values, 0);
    // Loads keep the stores of a private buffer; a load that is dropped may free an earlier store: later stages first.
    for (size_t si = n_.stages.size(); si-- > 0;) {
      auto& ops = n_.stages[si].ops;
      std::vector<char> keep(ops.size(), 0);
      for (size_t i = ops.size(); i-- > 0;) {
        const LoopOp& op = ops[i];
        if (op.code == OpCode::Store)
          keep[i] = !private_[op.buffer.index] || loaded[op.buffer.index];
        else if (op.code == OpCode::Indirect)
          keep[i] = 1;  // it checks its value, whoever reads at that place
        else
          keep[i] = live[op.result.index];
        if (!keep[i]) continue;
        for (int k = 0; k < arity(op.code); ++k) live[op.args[static_cast<size_t>(k)].index] = 1;
        if (op.code == OpCode::Load) loaded[op.buffer.index] = 1;
      }
      size_t i = 0;
      std::erase_if(ops, [&](const LoopOp&) { return !keep[i++]; });
    }
    std::erase_if(n_.stages, [](const Stage& s) { return s.ops.empty(); });
  }

  void renumber() {
    std::vector<ValId> to(n_.values);
    uint32_t next = 0;
    for (Stage& s : n_.stages)
      for (LoopOp& op : s.ops) {
        for (int i = 0; i < arity(op.code); ++i) {
          ValId& v = op.args[static_cast<size_t>(i)];
          v = to[v.index];
        }
        if (op.result.valid()) {
          to[op.result.index] = ValId(static_cast<size_t>(next));
          op.result = ValId(static_cast<size_t>(next++));
        }
      }
    n_.values = next;
  }

  sym::ExprArena& arena_;
  const Program& p_;
  Nest& n_;
  const std::vector<char>& private_;
  std::unordered_map<uint32_t, bool> stored_;
  std::unordered_map<uint32_t, LoopOp> rounded_;  // by the result
};

}  // namespace

void simplify(const Program& p, Nest& n, const std::vector<char>& private_buffers) {
  Simplifier(p, n, private_buffers).run();
}

// ---------------------------------------------------------------- scratch rows
void make_local(Program& p, Nest& n, const std::vector<char>& private_buffers) {
  sym::ExprArena& arena = *p.arena;
  auto all = loop::accesses(n);
  std::vector<BufferId> seen;
  for (const auto& store : all) {
    BufferId b = store.buffer;
    if (!store.write || !private_buffers[b.index] || std::find(seen.begin(), seen.end(), b) != seen.end()) continue;
    seen.push_back(b);
    if (p.buffers[b].kind != BufferKind::Temp) continue;
    const auto& axes = n.stages[store.stage].axes;
    auto base = dense_base(arena, store.index, axes);
    bool ok = base.has_value() && !store.atomic;
    std::vector<Expr> symbols;
    for (const auto& a : all) {
      if (!ok || a.buffer != b) continue;
      if (a.write) {
        ok = a.index == store.index && a.stage == store.stage;
        continue;
      }
      symbols.clear();
      arena.collect_symbols(arena.sub(a.index, *base), symbols);
      for (const Axis& o : n.outer)
        if (std::find(symbols.begin(), symbols.end(), o.var) != symbols.end()) ok = false;
    }
    if (!ok) continue;
    for (Stage& s : n.stages)
      for (LoopOp& op : s.ops)
        if ((op.code == OpCode::Load || op.code == OpCode::Store) && op.buffer == b)
          op.index = arena.sub(op.index, *base);
    loop::Buffer& buf = p.buffers[b];
    buf.kind = BufferKind::Local;
    buf.sizes = {volume(arena, axes)};
    buf.strides = {arena.constant(1)};
    buf.offset = arena.constant(0);
  }
}

// ---------------------------------------------------------------- rows
void make_rows(sym::ExprArena& arena, Nest& n) {
  constexpr int64_t kShortestRow = 16, kDear = 4;
  if (n.outer.size() < 2 || n.stages.size() != 1 || !n.stages[0].axes.empty()) return;
  const Axis last = n.outer.back();
  if (estimate(arena, last.extent) < kShortestRow) return;
  std::vector<char> varies(n.values, 0);
  std::vector<Expr> varying{last.var}, symbols;
  int64_t gain = 0;
  for (const LoopOp& op : n.stages[0].ops) {
    bool v = false;
    for (int i = 0; i < arity(op.code); ++i) v |= varies[op.args[static_cast<size_t>(i)].index] != 0;
    if (has_index(op)) {
      symbols.clear();
      arena.collect_symbols(op.index, symbols);
      for (Expr s : symbols) v |= std::find(varying.begin(), varying.end(), s) != varying.end();
      // Strided accesses want tiles or an outer vector.
      auto f = arena.affine_in(op.index, last.var);
      if (op.code != OpCode::Index && (!f || !(arena.is_const(f->coefficient, 0) || arena.is_const(f->coefficient, 1))))
        return;
    }
    if (op.code == OpCode::Indirect && v) varying.push_back(op.index);
    if (op.result.valid()) varies[op.result.index] = v;
    if (v) continue;
    if (op.code == OpCode::Indirect) gain += kDear;
    if (loop::cost(op.code) > 1) gain += loop::cost(op.code);
  }
  if (gain < kDear) return;
  n.outer.pop_back();
  n.stages[0].axes = {last};
  canonical_names(arena, n);
}

// ---------------------------------------------------------------- loop invariants
void hoist(sym::ExprArena& arena, Nest& n) {
  std::vector<char> outside(n.values, 0);  // known before the stage at hand
  std::vector<Stage> out;
  std::vector<Expr> symbols;
  for (Stage& s : n.stages) {
    if (s.axes.empty()) {
      for (const LoopOp& op : s.ops)
        if (op.result.valid()) outside[op.result.index] = 1;
      out.push_back(std::move(s));
      continue;
    }
    std::vector<Expr> varying;
    for (const Axis& a : s.axes) varying.push_back(a.var);
    std::vector<BufferId> stored;
    for (const LoopOp& op : s.ops)
      if (op.code == OpCode::Store) stored.push_back(op.buffer);
    std::vector<char> moves(s.ops.size(), 0), constant(n.values, 0);
    bool worth = false;
    for (size_t i = 0; i < s.ops.size(); ++i) {
      const LoopOp& op = s.ops[i];
      bool invariant = op.code != OpCode::Store && !loop::accumulates(op.code);
      for (int k = 0; k < arity(op.code) && invariant; ++k) invariant = outside[op.args[static_cast<size_t>(k)].index];
      if (invariant && has_index(op)) {
        symbols.clear();
        arena.collect_symbols(op.index, symbols);
        for (Expr v : symbols) invariant &= std::find(varying.begin(), varying.end(), v) == varying.end();
      }
      if (invariant && op.code == OpCode::Load)
        invariant = std::find(stored.begin(), stored.end(), op.buffer) == stored.end();
      if (invariant) {
        moves[i] = 1;
        if (op.result.valid()) outside[op.result.index] = 1;
        worth |= op.code != OpCode::Const;
      } else if (op.code == OpCode::Indirect) {
        varying.push_back(op.index);
      }
    }
    if (worth) {
      // Constants move only where a moved operation needs them.
      std::vector<char> needed(n.values, 0);
      for (size_t i = 0; i < s.ops.size(); ++i)
        if (moves[i])
          for (int k = 0; k < arity(s.ops[i].code); ++k) needed[s.ops[i].args[static_cast<size_t>(k)].index] = 1;
      if (out.empty() || !out.back().axes.empty()) out.push_back({});
      std::vector<LoopOp> stay;
      for (size_t i = 0; i < s.ops.size(); ++i) {
        bool go = moves[i] && (s.ops[i].code != OpCode::Const || needed[s.ops[i].result.index]);
        (go ? out.back().ops : stay).push_back(s.ops[i]);
      }
      s.ops = std::move(stay);
    }
    for (const LoopOp& op : s.ops)
      if (op.result.valid()) outside[op.result.index] = op.code == OpCode::Reduce;
    if (!s.ops.empty()) out.push_back(std::move(s));
  }
  n.stages = std::move(out);
}

}  // namespace braze::schedule
