#include "schedule/coalesce.h"

#include <algorithm>
#include <optional>

#include "loop/analysis.h"
#include "schedule/index.h"

namespace braze::schedule {
namespace {

using loop::BufferId;
using loop::BufferKind;
using loop::ExternCall;
using loop::Item;
using loop::LoopOp;
using loop::Nest;
using loop::OpCode;
using loop::Program;

// Whether the buffer's writers can write to another one as well, and nothing outside the program sees it.
class Uses {
 public:
  explicit Uses(const Program& p)
      : first_(p.buffers.size(), UINT32_MAX), last_(p.buffers.size(), 0), bound_(p.buffers.size(), false) {
    for (uint32_t i = 0; i < p.items.size(); ++i) {
      loop::Effects e = loop::effects(p.items[i]);
      for (auto* list : {&e.reads, &e.writes})
        for (BufferId b : *list) {
          first_[b.index] = std::min(first_[b.index], i);
          last_[b.index] = std::max(last_[b.index], i);
        }
      if (auto* call = std::get_if<ExternCall>(&p.items[i]); call && !call->preallocated)
        for (BufferId b : e.writes) bound_[b.index] = true;
    }
    for (const loop::Output& o : p.outputs)
      if (o.kind == loop::Output::Kind::View) bound_[o.view.buffer.index] = true;
    for (const loop::Writeback& w : p.writebacks) bound_[w.from.buffer.index] = true;
  }

  bool takes(const Program& p, const Copy& c, uint32_t at) const {
    BufferKind to = p.buffers[c.to].kind;
    return p.buffers[c.from].kind == BufferKind::Temp && (to == BufferKind::Temp || to == BufferKind::Output) &&
           !bound_[c.from.index] && last_[c.from.index] == at && first_[c.to.index] == at;
  }
  void join(const Copy& c) { first_[c.to.index] = first_[c.from.index]; }

 private:
  std::vector<uint32_t> first_, last_;  // items that use a buffer
  std::vector<bool> bound_;             // per buffer: must stay the one that it is
};

}  // namespace

std::optional<Copy> whole_copy(const Program& p, const Item& item) {
  auto* n = std::get_if<Nest>(&item);
  if (!n || n->stages.size() != 1 || n->stages[0].ops.size() < 2) return std::nullopt;
  const loop::Stage& s = n->stages[0];
  const LoopOp &load = s.ops.front(), &store = s.ops.back();
  if (load.code != OpCode::Load || store.code != OpCode::Store || store.atomic_add || load.index != store.index)
    return std::nullopt;
  // Types of few bits by way of one that holds all of their values.
  loop::ValId moved = load.result;
  for (size_t i = 1; i + 1 < s.ops.size(); ++i) {
    const LoopOp& op = s.ops[i];
    bool lossless = op.code == OpCode::Cast && (op.dtype == DType::F32 || op.dtype == load.dtype);
    if (!lossless || !is_rounded_float(load.dtype) || op.args[0] != moved) return std::nullopt;
    moved = op.result;
  }
  if (store.args[0] != moved) return std::nullopt;
  const loop::Buffer &a = p.buffers[load.buffer], &b = p.buffers[store.buffer];
  sym::ExprArena& arena = *p.arena;
  std::vector<Axis> axes = n->outer;
  axes.insert(axes.end(), s.axes.begin(), s.axes.end());
  auto base = dense_base(arena, store.index, axes);
  auto elements = [&](const loop::Buffer& buffer) {
    Expr count = arena.constant(1);
    for (Expr size : buffer.sizes) count = arena.mul(count, size);
    return count;
  };
  bool whole = base && arena.is_const(*base, 0) && arena.known_equal(volume(arena, axes), elements(a)) &&
               arena.known_equal(elements(a), elements(b));
  if (!whole || a.dtype != b.dtype || a.device != b.device) return std::nullopt;
  return Copy{load.buffer, store.buffer};
}

void coalesce_copies(Program& p) {
  Uses uses(p);
  std::vector<BufferId> now;  // per buffer, once one went
  std::vector<char> gone(p.items.size(), 0);
  for (uint32_t i = 0; i < p.items.size(); ++i) {
    std::optional<Copy> c = whole_copy(p, p.items[i]);
    if (!c || !uses.takes(p, *c, i)) continue;
    if (now.empty())
      for (size_t b = 0; b < p.buffers.size(); ++b) now.emplace_back(b);
    uses.join(*c);
    now[c->from.index] = c->to;
    gone[i] = 1;
  }
  if (now.empty()) return;
  auto follow = [&](BufferId& b) {
    while (b.valid() && now[b.index] != b) b = now[b.index];
  };
  size_t i = 0;
  std::erase_if(p.items, [&](const Item&) { return gone[i++]; });
  for (Item& item : p.items) {
    if (auto* n = std::get_if<Nest>(&item)) {
      for (loop::Stage& s : n->stages)
        for (LoopOp& op : s.ops)
          if (op.code == OpCode::Load || op.code == OpCode::Store) follow(op.buffer);
    } else {
      auto& call = std::get<ExternCall>(item);
      for (auto* views : {&call.views, &call.outputs})
        for (loop::View& v : *views) follow(v.buffer);
    }
  }
}

}  // namespace braze::schedule
