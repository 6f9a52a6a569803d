#include "loop/analysis.h"

#include <algorithm>
#include <map>

#include "base/hash.h"
#include "loop/text.h"

namespace braze::loop {

bool is_indirect(const sym::ExprArena& arena, Expr index) {
  std::vector<Expr> symbols;
  arena.collect_symbols(index, symbols);
  return std::any_of(symbols.begin(), symbols.end(),
                     [&](Expr s) { return arena.symbol_kind(s) == sym::SymbolKind::Indirect; });
}

std::vector<Access> accesses(const Nest& nest) {
  std::vector<Access> v;
  for (uint32_t s = 0; s < nest.stages.size(); ++s) {
    const auto& ops = nest.stages[s].ops;
    for (uint32_t i = 0; i < ops.size(); ++i) {
      const LoopOp& op = ops[i];
      if (op.code == OpCode::Load || op.code == OpCode::Store)
        v.push_back({op.buffer, s, i, op.index, op.code == OpCode::Store, op.atomic_add});
    }
  }
  return v;
}

bool contains(const std::vector<BufferId>& buffers, BufferId b) {
  return std::find(buffers.begin(), buffers.end(), b) != buffers.end();
}

bool have_common(const std::vector<BufferId>& some, const std::vector<BufferId>& others) {
  return std::any_of(some.begin(), some.end(), [&](BufferId b) { return contains(others, b); });
}

namespace {
void add_once(std::vector<BufferId>& v, BufferId b) {
  if (b.valid() && !contains(v, b)) v.push_back(b);
}
}  // namespace

Effects effects(const Item& item) {
  Effects e;
  if (auto* n = std::get_if<Nest>(&item)) {
    for (const Access& a : accesses(*n)) {
      if (a.write) add_once(e.writes, a.buffer);
      if (!a.write || a.atomic) add_once(e.reads, a.buffer);
    }
  } else {
    const auto& c = std::get<ExternCall>(item);
    for (const View& v : c.views) add_once(e.reads, v.buffer);
    for (const View& v : c.outputs) add_once(e.writes, v.buffer);
  }
  return e;
}

namespace {

// Unbacked symbols get their values from the results of extern calls: who uses one follows the call that defines it,
// and what was asserted of it until then.
class SymbolOrder {
 public:
  explicit SymbolOrder(const Program& p) : arena_(*p.arena) {
    for (uint32_t i = 0; i < p.items.size(); ++i)
      if (auto* c = std::get_if<ExternCall>(&p.items[i])) {
        for (const View& v : c->outputs)
          for (Expr e : v.sizes) define(e, i);
        if (c->op == graph::Op::_local_scalar_dense && c->args.size() > 1)
          if (auto* e = std::get_if<Expr>(&c->args[1])) define(*e, i);
        if (c->op != graph::Op::_assert_scalar) continue;
        std::vector<Expr> symbols;
        for_each_expr(p.items[i], [&](Expr e) { arena_.collect_symbols(e, symbols); });
        for (Expr s : symbols)
          if (arena_.symbol_kind(s) == sym::SymbolKind::Unbacked) asserted_[s.id].push_back(i);
      }
  }

  void add(const Program& p, uint32_t i, const Effects& effects, std::vector<uint32_t>& deps) const {
    if (defined_.empty()) return;
    std::vector<Expr> used;
    for_each_expr(p.items[i], [&](Expr e) { arena_.collect_symbols(e, used); });
    // The memory that it writes to is made before it, though it may write only a part of known size.
    for (BufferId b : effects.writes)
      for (Expr e : p.buffers[b].sizes) arena_.collect_symbols(e, used);
    for (Expr s : used)
      if (auto it = defined_.find(s.id); it != defined_.end()) {
        if (it->second < i) deps.push_back(it->second);
        if (auto a = asserted_.find(s.id); a != asserted_.end())
          for (uint32_t k : a->second)
            if (k < i) deps.push_back(k);
      }
  }

 private:
  void define(Expr e, uint32_t i) {
    if (arena_.kind(e) == sym::Kind::Symbol && arena_.symbol_kind(e) == sym::SymbolKind::Unbacked)
      defined_.emplace(e.id, i);
  }

  const sym::ExprArena& arena_;
  std::map<uint32_t, uint32_t> defined_;
  std::map<uint32_t, std::vector<uint32_t>> asserted_;  // items
};

}  // namespace

bool of_caller(const Program& program, BufferId buffer) {
  const BufferKind kind = program.buffers[buffer].kind;
  return kind == BufferKind::Input || kind == BufferKind::Constant ||
         std::any_of(program.writebacks.begin(), program.writebacks.end(),
                     [&](const Writeback& w) { return w.from.buffer == buffer; });
}

std::optional<Device> device_of(const Program& program, const Nest& nest) {
  for (const Stage& s : nest.stages)
    for (const LoopOp& op : s.ops)
      if (op.code == OpCode::Store && program.buffers[op.buffer].kind != BufferKind::Local)
        return program.buffers[op.buffer].device;
  return std::nullopt;
}

bool divides_integers(const LoopOp& op) {
  return is_integral(op.dtype) && op.dtype != DType::Bool &&
         (op.code == OpCode::Div || op.code == OpCode::FloorDiv || op.code == OpCode::Mod ||
          op.code == OpCode::Remainder);
}

bool may_fault(const LoopOp& op) { return op.code == OpCode::Indirect || divides_integers(op); }
bool may_fault(const Nest& nest) {
  return std::ranges::any_of(nest.stages, [](const Stage& s) {
    return std::ranges::any_of(s.ops, [](const LoopOp& op) { return may_fault(op); });
  });
}

std::vector<std::vector<uint32_t>> dependencies(const Program& program) {
  const SymbolOrder symbols(program);
  std::vector<std::vector<uint32_t>> deps(program.items.size());
  std::vector<std::vector<uint32_t>> writers(program.buffers.size()), readers(program.buffers.size());
  std::vector<uint32_t> faulting;  // what the writes that cannot be taken back wait for
  uint32_t last_effect = UINT32_MAX;
  for (uint32_t i = 0; i < program.items.size(); ++i) {
    Effects e = effects(program.items[i]);
    auto& d = deps[i];
    for (BufferId b : e.reads) d.insert(d.end(), writers[b.index].begin(), writers[b.index].end());
    for (BufferId b : e.writes) {
      d.insert(d.end(), writers[b.index].begin(), writers[b.index].end());
      d.insert(d.end(), readers[b.index].begin(), readers[b.index].end());
    }
    // Operators with effects (random state, assertions) keep their order among themselves.
    if (auto* c = std::get_if<ExternCall>(&program.items[i]);
        c && (graph::op_traits(c->op) & graph::kEffect || c->op == graph::Op::Extern)) {
      if (last_effect != UINT32_MAX) d.push_back(last_effect);
      last_effect = i;
    }
    if (auto* n = std::get_if<Nest>(&program.items[i])) {
      if (n->commits) d.insert(d.end(), faulting.begin(), faulting.end());
      if (may_fault(*n)) faulting.push_back(i);
    }
    symbols.add(program, i, e, d);
    for (BufferId b : e.reads) readers[b.index].push_back(i);
    for (BufferId b : e.writes) writers[b.index].push_back(i);
    std::sort(d.begin(), d.end());
    d.erase(std::unique(d.begin(), d.end()), d.end());
    if (!d.empty() && d.back() == i) d.pop_back();
  }
  return deps;
}

namespace {

void put(std::string& s, uint64_t v) {
  s += std::to_string(v);
  s += ' ';
}

}  // namespace

std::string key(const Program& program, const Nest& nest, std::vector<BufferId>* buffers) {
  sym::ExprArena& arena = *program.arena;
  std::vector<BufferId> order;
  std::string s;
  s.reserve(1024);
  auto expr = [&](Expr e) {
    s += arena.print(e);
    s += ';';
  };
  auto axes = [&](const std::vector<Axis>& v) {
    s += '[';
    for (const Axis& a : v) {
      expr(a.var);
      expr(a.extent);
    }
    s += ']';
  };
  s += "v";
  put(s, static_cast<uint64_t>(nest.mapping.vector));
  put(s, static_cast<uint64_t>(nest.mapping.tile));
  put(s, static_cast<uint64_t>(nest.mapping.grain));
  put(s, static_cast<uint64_t>(nest.mapping.ahead));
  axes(nest.outer);
  for (const Stage& st : nest.stages) {
    s += "\nstage";
    axes(st.axes);
    for (const LoopOp& op : st.ops) {
      s += '\n';
      put(s, static_cast<uint64_t>(op.code));
      put(s, static_cast<uint64_t>(static_cast<uint8_t>(op.dtype)));
      for (int i = 0; i < arity(op.code); ++i) put(s, op.args[static_cast<size_t>(i)].index);
      if (op.result.valid()) put(s, op.result.index);
      switch (op.code) {
        case OpCode::Load:
        case OpCode::Store: {
          size_t k = static_cast<size_t>(std::find(order.begin(), order.end(), op.buffer) - order.begin());
          if (k == order.size()) order.push_back(op.buffer);
          s += op.atomic_add ? '+' : '%';
          put(s, k);
          expr(op.index);
          break;
        }
        case OpCode::Const: put(s, static_cast<uint64_t>(op.integer)); break;  // the union's bits
        case OpCode::Index: expr(op.index); break;
        case OpCode::Indirect:
          expr(op.index);
          expr(op.bound);
          break;
        case OpCode::Reduce:
        case OpCode::Scan: put(s, static_cast<uint64_t>(op.reduce)); break;
        default: break;
      }
    }
  }
  s += "\nbuffers";
  for (BufferId b : order) {
    const Buffer& buf = program.buffers[b];
    s += ' ';
    put(s, static_cast<uint64_t>(static_cast<uint8_t>(buf.dtype)));
    put(s, static_cast<uint64_t>(buf.device.type));
    if (!program.arena->is_const(buf.offset, 0)) expr(buf.offset);
    if (buf.kind == BufferKind::Local) {
      s += "local ";
      for (Expr e : buf.sizes) expr(e);
    }
    // Whether it is written tells the generator nothing that the ops do not; where its address comes from does not
    // matter.
  }
  if (buffers) *buffers = std::move(order);
  return s;
}

uint64_t hash(const Program& program, const Nest& nest) {
  Hasher h;
  h.add(std::string_view(key(program, nest)));
  return h.value();
}

void for_each_expr(const Nest& nest, const std::function<void(Expr)>& f) {
  for (const Axis& a : nest.outer) f(a.extent);
  for (const Stage& s : nest.stages) {
    for (const Axis& a : s.axes) f(a.extent);
    for (const LoopOp& op : s.ops) {
      if (op.code == OpCode::Load || op.code == OpCode::Store || op.code == OpCode::Index) f(op.index);
      if (op.code == OpCode::Indirect) f(op.bound);
    }
  }
}

void for_each_expr(const View& v, const std::function<void(Expr)>& f) {
  for (Expr e : v.sizes) f(e);
  for (Expr e : v.strides) f(e);
  f(v.offset);
}

void for_each_expr(const Item& item, const std::function<void(Expr)>& f) {
  if (auto* n = std::get_if<Nest>(&item)) return for_each_expr(*n, f);
  const auto& c = std::get<ExternCall>(item);
  for (const ExternArg& a : c.args) {
    if (auto* e = std::get_if<Expr>(&a)) f(*e);
    if (auto* l = std::get_if<graph::IntList>(&a))
      for (Expr x : l->v) f(x);
  }
  for (const View& v : c.views) for_each_expr(v, f);
  for (const View& v : c.outputs) for_each_expr(v, f);
}

void for_each_expr(const Program& program, const std::function<void(Expr)>& f) {
  for (const Buffer& b : program.buffers) {
    for (Expr e : b.sizes) f(e);
    for (Expr e : b.strides) f(e);
    f(b.offset);
  }
  for (const Item& item : program.items) for_each_expr(item, f);
  for (const Output& o : program.outputs)
    if (o.kind == Output::Kind::View) for_each_expr(o.view, f);
  for (const Writeback& w : program.writebacks) for_each_expr(w.from, f);
}

const LoopOp* op_of(const Nest& nest, ValId value) {
  for (const Stage& s : nest.stages)
    for (const LoopOp& op : s.ops)
      if (op.result == value) return &op;
  return nullptr;
}

std::optional<DType> dtype_of(const Nest& nest, ValId value) {
  const LoopOp* op = op_of(nest, value);
  return op ? std::optional(op->dtype) : std::nullopt;
}

}  // namespace braze::loop
