#include "schedule/online_softmax.h"

#include <algorithm>
#include <cmath>

#include "loop/analysis.h"
#include "schedule/index.h"
#include "schedule/mapping.h"

namespace braze::schedule {
namespace {

using loop::BufferId;
using loop::Item;
using loop::LoopOp;
using loop::Nest;
using loop::OpCode;
using loop::Program;
using loop::ReduceKind;
using loop::Stage;
using loop::ValId;

constexpr int64_t kNear = 1 << 20;  // CPU: bytes of a row that a core still has at hand when it reads it again

// A nest with one reduction over axes, whose result later stages without axes use.
bool is_reduction(const Nest& n) {
  return n.stages.size() == 2 && !n.stages[0].axes.empty() && n.stages[1].axes.empty();
}

// What an op of a nest computes, by the value's number.
class Definitions {
 public:
  explicit Definitions(const Nest& n) : of_(n.values, nullptr) {
    for (const Stage& s : n.stages)
      for (const LoopOp& op : s.ops)
        if (op.result.valid()) of_[op.result.index] = &op;
  }
  const LoopOp* operator()(ValId v) const { return v.valid() ? of_[v.index] : nullptr; }
  const LoopOp* operator()(ValId v, OpCode code) const {
    const LoopOp* op = (*this)(v);
    return op && op->code == code ? op : nullptr;
  }

 private:
  std::vector<const LoopOp*> of_;
};

// Whether two values are computed alike where the second nest's variables are replaced as `to` says. What reads through
// an index that is data, or another reduction or scan, is not looked into.
bool alike(sym::ExprArena& arena, const Definitions& in_a, ValId a, const Definitions& in_b, ValId b,
           const Substitution& to) {
  const LoopOp *x = in_a(a), *y = in_b(b);
  if (!x || !y || x->code != y->code || x->dtype != y->dtype) return false;
  switch (x->code) {
    case OpCode::Reduce:
    case OpCode::Scan:
    case OpCode::Indirect: return false;
    case OpCode::Const: return x->integer == y->integer;
    case OpCode::Load:
      if (x->buffer != y->buffer) return false;
      [[fallthrough]];
    case OpCode::Index: return x->index == arena.substitute(y->index, to) && !loop::is_indirect(arena, x->index);
    default: break;
  }
  for (size_t i = 0; i < static_cast<size_t>(loop::arity(x->code)); ++i)
    if (!alike(arena, in_a, x->args[i], in_b, y->args[i], to)) return false;
  return true;
}

// The maximum of a row as a nest stores it.
struct Maximum {
  size_t item;
  ValId of, result;  // the row's element, and the reduction
  DType dtype;
  BufferId buffer;
  Expr index;
};

class Joiner {
 public:
  Joiner(Program& p, const Targets& targets) : p_(p), arena_(*p.arena), targets_(targets) {}

  void run() {
    std::vector<Maximum> maxima;
    for (size_t i = 0; i < p_.items.size(); ++i) {
      if (join(i, maxima)) continue;
      forget(maxima, p_.items[i]);
      find(i, maxima);
    }
  }

 private:
  Nest* nest(size_t i) { return std::get_if<Nest>(&p_.items[i]); }

  // What an item writes to is no longer what a maximum before it was of.
  void forget(std::vector<Maximum>& maxima, const Item& item) {
    const loop::Effects e = loop::effects(item);
    std::erase_if(maxima, [&](const Maximum& m) {
      const loop::Effects own = loop::effects(p_.items[m.item]);
      return std::ranges::any_of(
          e.writes, [&](BufferId b) { return b == m.buffer || std::ranges::find(own.reads, b) != own.reads.end(); });
    });
  }

  void find(size_t i, std::vector<Maximum>& maxima) {
    const Nest* n = nest(i);
    if (!n || !is_reduction(*n) || !is_long(*n)) return;
    for (const LoopOp& op : n->stages[0].ops) {
      if (op.code != OpCode::Reduce || op.reduce != ReduceKind::Max) continue;
      if (op.dtype != DType::F32 && op.dtype != DType::F64) continue;
      for (const LoopOp& store : n->stages[1].ops)
        if (store.code == OpCode::Store && store.args[0] == op.result && !store.atomic_add)
          maxima.push_back({i, op.args[0], op.result, op.dtype, store.buffer, store.index});
    }
  }

  // Whether the threads that share a row read it from memory each time that they need it.
  bool is_long(const Nest& n) const {
    const Target& target = target_of(targets_, p_, n);
    const Stage& s = n.stages[0];
    const Expr length = volume(arena_, s.axes);
    if (!n.outer.empty() && runs_along(s, n.outer.back().var)) return false;  // rows beside each other: columns
    if (!target.is_gpu()) {
      int64_t bytes = 0;
      for (const LoopOp& op : s.ops)
        if (op.code == OpCode::Load && runs_along(s, s.axes.back().var)) bytes += size_of(op.dtype);
      return estimate(arena_, length) * bytes > kNear;
    }
    const auto known = arena_.as_const(length);
    return !known || *known > target.registers / (arena_.known_multiple(s.axes.back().extent, 2) ? 2 : 4);
  }

  bool runs_along(const Stage& s, Expr var) const {
    return std::ranges::any_of(s.ops, [&](const LoopOp& op) {
      if (op.code != OpCode::Load) return false;
      if (std::ranges::none_of(s.axes, [&](const Axis& a) { return arena_.contains(op.index, a.var); })) return false;
      auto f = arena_.affine_in(op.index, var);
      return f && arena_.is_const(f->coefficient, 1);
    });
  }

  // Whether `v` is the maximum in a nest that loads it, or it with 0 for what is infinite.
  static const LoopOp* maximum_in(const Definitions& d, ValId v, bool* or_zero) {
    *or_zero = false;
    if (const LoopOp* load = d(v, OpCode::Load)) return load;
    const LoopOp* choice = d(v, OpCode::Where);
    if (!choice) return nullptr;
    const LoopOp *zero = d(choice->args[1], OpCode::Const), *load = d(choice->args[2], OpCode::Load),
                 *equal = d(choice->args[0], OpCode::Eq);
    if (!zero || zero->number != 0 || !load || !equal) return nullptr;
    const LoopOp *size = d(equal->args[0], OpCode::Abs), *inf = d(equal->args[1], OpCode::Const);
    if (!size || size->args[0] != load->result || !inf || inf->number != HUGE_VAL) return nullptr;
    *or_zero = true;
    return load;
  }

  // The only nest before `i` that writes a buffer.
  const Nest* maker_of(BufferId buffer, size_t i) {
    const Nest* found = nullptr;
    for (size_t k = 0; k < i; ++k) {
      const loop::Effects e = loop::effects(p_.items[k]);
      if (std::ranges::find(e.writes, buffer) == e.writes.end()) continue;
      if (found || !nest(k)) return nullptr;
      found = nest(k);
    }
    return found;
  }

  // The store of what `reader` loads at `index`, of a nest over the reader's axes, outer ones and the row's; `to`: the
  // nest's variables as the reader's.
  const LoopOp* stored(const Nest& maker, const Nest& reader, Expr index, BufferId buffer, Substitution& to) {
    std::vector<Axis> axes = reader.outer;
    axes.insert(axes.end(), reader.stages[0].axes.begin(), reader.stages[0].axes.end());
    if (maker.stages.size() != 1 || !maker.stages[0].axes.empty() || maker.outer.size() != axes.size()) return nullptr;
    for (size_t k = 0; k < axes.size(); ++k) {
      if (maker.outer[k].extent != axes[k].extent) return nullptr;
      to.push_back({maker.outer[k].var, axes[k].var});
    }
    for (const LoopOp& op : maker.stages[0].ops)
      if (op.code == OpCode::Store && op.buffer == buffer && !op.atomic_add && arena_.substitute(op.index, to) == index)
        return &op;
    return nullptr;
  }

  bool join(size_t i, const std::vector<Maximum>& maxima) {
    Nest* b = nest(i);
    if (!b || !is_reduction(*b)) return false;
    const LoopOp* sum = nullptr;
    for (const LoopOp& op : b->stages[0].ops) {
      if (op.code == OpCode::Store || op.code == OpCode::Indirect || (op.code == OpCode::Reduce && sum)) return false;
      if (op.code == OpCode::Reduce) sum = &op;
    }
    if (!sum || sum->reduce != ReduceKind::Sum) return false;
    // The exponential, in this nest or in one without reductions that stores it for others, too.
    Definitions in_b(*b);
    ValId of = sum->args[0];
    Substitution to;
    if (const LoopOp* load = in_b(of, OpCode::Load)) {
      if (!target_of(targets_, p_, *b).is_gpu()) return false;  // there a second exponential is dearer than to load it
      const Nest* maker = maker_of(load->buffer, i);
      const LoopOp* store = maker ? stored(*maker, *b, load->index, load->buffer, to) : nullptr;
      if (!store) return false;
      in_b = Definitions(*maker);
      of = store->args[0];
    }
    const LoopOp* power = in_b(of, OpCode::Exp);
    const LoopOp* below = power ? in_b(power->args[0], OpCode::Sub) : nullptr;
    if (!below || power->dtype != sum->dtype) return false;
    bool or_zero = false;
    const LoopOp* top = maximum_in(in_b, below->args[1], &or_zero);
    if (!top) return false;
    for (const Maximum& m : maxima) {
      Nest* a = nest(m.item);
      if (m.buffer != top->buffer || m.index != arena_.substitute(top->index, to) || m.dtype != sum->dtype) continue;
      if (!same_axes(a->outer, b->outer) || !same_axes(a->stages[0].axes, b->stages[0].axes)) continue;
      const Definitions in_a(*a);
      if (!alike(arena_, in_a, m.of, in_b, below->args[0], to)) continue;
      replace(*a, m, *b, sum->result, or_zero);
      return true;
    }
    return false;
  }

  static ValId add(Nest& n, std::vector<LoopOp>& ops, LoopOp op) {
    op.result = ValId(static_cast<size_t>(n.values++));
    ops.push_back(op);
    return op.result;
  }

  // The first nest makes the sum, too, before the maximum, which then shares its work; the second loads it.
  void replace(Nest& a, const Maximum& m, Nest& b, ValId sum, bool or_zero) {
    const DType t = m.dtype;
    auto& reductions = a.stages[0].ops;
    const auto at = std::ranges::find(reductions, m.result, &LoopOp::result);
    loop::Buffer buffer = p_.buffers[m.buffer];
    buffer.name = "exp_sum";
    buffer.kind = loop::BufferKind::Temp;
    buffer.dtype = t;
    const BufferId sums = p_.buffers.add(std::move(buffer));
    LoopOp both{.code = OpCode::Reduce, .dtype = t, .args = {m.of, ValId(), ValId()}, .reduce = ReduceKind::ExpSum};
    both.result = ValId(static_cast<size_t>(a.values++));
    reductions.insert(at, both);
    a.stages[1].ops.push_back(
        {.code = OpCode::Store, .dtype = t, .args = {both.result, ValId(), ValId()}, .buffer = sums, .index = m.index});

    std::vector<LoopOp> ops;
    ValId now = add(b, ops, {.code = OpCode::Load, .dtype = t, .buffer = sums, .index = m.index});
    if (or_zero) {
      ValId top = add(b, ops, {.code = OpCode::Load, .dtype = t, .buffer = m.buffer, .index = m.index});
      ValId inf = add(b, ops, {.code = OpCode::Const, .dtype = t, .number = HUGE_VAL});
      ValId size = add(b, ops, {.code = OpCode::Abs, .dtype = t, .args = {top, ValId(), ValId()}});
      ValId infinite = add(b, ops, {.code = OpCode::Eq, .dtype = DType::Bool, .args = {size, inf, ValId()}});
      ValId power = add(b, ops, {.code = OpCode::Exp, .dtype = t, .args = {top, ValId(), ValId()}});
      now = add(b, ops, {.code = OpCode::Where, .dtype = t, .args = {infinite, power, now}});
    }
    for (LoopOp op : b.stages[1].ops) {
      for (ValId& v : op.args)
        if (v == sum) v = now;
      ops.push_back(op);
    }
    b.stages = {Stage{{}, std::move(ops)}};
  }

  Program& p_;
  sym::ExprArena& arena_;
  const Targets& targets_;
};

}  // namespace

void online_softmax(Program& program, const Targets& targets) { Joiner(program, targets).run(); }

}  // namespace braze::schedule
