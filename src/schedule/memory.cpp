#include "schedule/memory.h"

#include <algorithm>

#include "loop/analysis.h"
#include "schedule/write_through.h"

namespace braze::schedule {
namespace {

using loop::Buffer;
using loop::BufferId;
using loop::BufferKind;
using loop::LoopOp;
using loop::Nest;
using sym::Expr;
using Kind = Placement::Kind;

// Bytes that a strided box spans.
Expr span_bytes(sym::ExprArena& a, const Buffer& b) {
  Expr last = a.constant(0);
  for (size_t d = 0; d < b.sizes.size(); ++d) {
    if (a.is_const(b.sizes[d], 0)) return a.constant(0);
    last = a.add(last, a.mul(a.sub(b.sizes[d], a.constant(1)), b.strides[d]));
  }
  Expr count = a.add(last, a.constant(1));
  // Sizes that only the run knows may be zero.
  if (a.range(count).lo < 0) count = a.max(count, a.constant(0));
  return a.mul(count, a.constant(size_of(b.dtype)));
}

Expr align(sym::ExprArena& a, Expr bytes) {
  if (auto c = a.as_const(bytes)) return a.constant((*c + 63) / 64 * 64);
  if (a.known_multiple(bytes, 64)) return bytes;
  return a.mul(a.ceildiv(bytes, a.constant(64)), a.constant(64));
}

struct Block {  // buffers that share one address
  std::vector<BufferId> members;
  int32_t first, last;
  Expr bytes;
  int64_t size = 0, offset = 0;  // static sizes
};

bool overlap(const Block& a, const Block& b) { return a.first <= b.last && b.first <= a.last; }

// Best fit: each block in `order` goes to the smallest hole between the blocks that live at the same time.
int64_t assign(std::vector<Block>& blocks, const std::vector<size_t>& order) {
  int64_t total = 0;
  std::vector<size_t> placed, near;
  for (size_t i : order) {
    Block& b = blocks[i];
    near.clear();
    for (size_t j : placed)
      if (overlap(b, blocks[j])) near.push_back(j);
    std::sort(near.begin(), near.end(), [&](size_t x, size_t y) { return blocks[x].offset < blocks[y].offset; });
    int64_t at = 0, best = -1, best_hole = INT64_MAX;
    for (size_t j : near) {
      int64_t hole = blocks[j].offset - at;
      if (hole >= b.size && hole < best_hole) {
        best = at;
        best_hole = hole;
      }
      at = std::max(at, blocks[j].offset + blocks[j].size);
    }
    b.offset = best >= 0 ? best : at;
    total = std::max(total, b.offset + b.size);
    placed.push_back(i);
  }
  return total;
}

int64_t assign_static(std::vector<Block>& blocks) {
  std::vector<size_t> by_size(blocks.size()), by_time;
  for (size_t i = 0; i < blocks.size(); ++i) by_size[i] = i;
  by_time = by_size;
  std::sort(by_size.begin(), by_size.end(), [&](size_t x, size_t y) {
    return std::tuple(-blocks[x].size, blocks[x].first, x) < std::tuple(-blocks[y].size, blocks[y].first, y);
  });
  std::sort(by_time.begin(), by_time.end(),
            [&](size_t x, size_t y) { return std::tuple(blocks[x].first, x) < std::tuple(blocks[y].first, y); });
  std::vector<Block> second = blocks;
  int64_t a = assign(blocks, by_size), b = assign(second, by_time);
  if (b < a) blocks = std::move(second);
  return std::min(a, b);
}

}  // namespace

MemoryPlan plan_memory(const loop::Program& p, const std::vector<Use>& uses) {
  sym::ExprArena& arena = *p.arena;
  MemoryPlan plan;
  for (const Buffer& b : p.buffers) {
    Placement x;
    x.offset = x.bytes = arena.constant(0);
    if (b.kind == BufferKind::Input || b.kind == BufferKind::Constant) x.kind = Kind::Input;
    x.input = b.input;
    plan.buffers.add(x);
  }
  std::vector<bool> through = writes_through(p);
  for (size_t i = 0; i < through.size(); ++i)
    if (through[i]) {
      Placement& x = plan.buffers[p.writebacks[i].from.buffer];
      x.kind = Kind::Input;
      x.input = p.writebacks[i].input;
    }
  auto count = static_cast<int32_t>(p.items.size());

  for (int32_t i = 0; i < count; ++i) {
    loop::Effects e = loop::effects(p.items[static_cast<size_t>(i)]);
    for (BufferId b : e.reads) {
      Placement& x = plan.buffers[b];
      x.last = i;
      // Read and never written: it has no elements.
      if (x.first < 0 && p.buffers[b].kind == BufferKind::Temp) {
        x.first = i;
        x.kind = Kind::Arena;
      }
    }
    auto* c = std::get_if<loop::ExternCall>(&p.items[static_cast<size_t>(i)]);
    for (BufferId b : e.writes) {
      Placement& x = plan.buffers[b];
      x.last = i;
      if (x.first >= 0) continue;
      x.first = i;
      if (x.kind == Kind::Input) continue;
      BufferKind k = p.buffers[b].kind;
      if (k != BufferKind::Temp && k != BufferKind::Output) continue;
      bool there =
          std::find(e.reads.begin(), e.reads.end(), b) != e.reads.end();  // the call writes to what it is given
      if (c && !c->preallocated && !there)
        x.kind = Kind::Adopted;
      else
        x.kind = k == BufferKind::Temp ? Kind::Arena : Kind::Output;
    }
  }
  for (const loop::Output& o : p.outputs)
    if (o.kind == loop::Output::Kind::View) {
      Placement& x = plan.buffers[o.view.buffer];
      x.last = count;
      // Handed out and never written: it has no elements.
      if (x.first < 0 && p.buffers[o.view.buffer].kind == BufferKind::Output) {
        x.first = 0;
        x.kind = Kind::Output;
      }
    }
  for (const loop::Writeback& w : p.writebacks) plan.buffers[w.from.buffer].last = count;

  for (const Use& u : uses) {
    int32_t& last = plan.buffers[u.buffer].last;
    last = std::max(last, static_cast<int32_t>(u.item) + 1);
  }

  std::vector<Block> blocks;
  std::vector<size_t> block_of(p.buffers.size(), SIZE_MAX);
  std::vector<std::vector<BufferId>> made(p.items.size());
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    Placement& x = plan.buffers[BufferId(i)];
    if (x.kind == Kind::Output) x.bytes = span_bytes(arena, p.buffers[BufferId(i)]);
    if (x.kind != Kind::Arena) continue;
    x.bytes = align(arena, span_bytes(arena, p.buffers[BufferId(i)]));
    made[static_cast<size_t>(x.first)].push_back(BufferId(i));
  }
  for (size_t i = 0; i < p.items.size(); ++i) {
    auto* nest = std::get_if<Nest>(&p.items[i]);
    loop::Effects e = made[i].empty() ? loop::Effects{} : loop::effects(p.items[i]);
    std::vector<BufferId> reused;
    for (BufferId y : made[i]) {
      Placement& py = plan.buffers[y];
      size_t at = SIZE_MAX;
      for (BufferId x : e.reads) {
        const Placement& px = plan.buffers[x];
        if (!nest || px.kind != Kind::Arena || px.last != static_cast<int32_t>(i) ||
            px.first >= static_cast<int32_t>(i))
          continue;
        if (px.bytes != py.bytes || size_of(p.buffers[x].dtype) != size_of(p.buffers[y].dtype)) continue;
        if (std::find(reused.begin(), reused.end(), x) != reused.end() || !in_place(arena, *nest, x, y)) continue;
        reused.push_back(x);
        at = block_of[x.index];
        break;
      }
      if (at == SIZE_MAX) {
        at = blocks.size();
        blocks.push_back({{}, py.first, py.last, py.bytes});
      }
      blocks[at].members.push_back(y);
      blocks[at].last = std::max(blocks[at].last, py.last);
      block_of[y.index] = at;
    }
  }

  std::vector<Block> fixed, varying;
  for (Block& b : blocks) {
    if (auto c = arena.as_const(b.bytes)) {
      b.size = *c;
      fixed.push_back(std::move(b));
    } else {
      varying.push_back(std::move(b));
    }
  }
  Expr total = arena.constant(assign_static(fixed));
  for (const Block& b : fixed)
    for (BufferId m : b.members) plan.buffers[m].offset = arena.constant(b.offset);

  // Equal formulas share slots; blocks come in order of `first`, so the first free slot is enough.
  struct Slot {
    Expr bytes, offset;
    int32_t last;
  };
  std::vector<Slot> slots;
  for (const Block& b : varying) {
    Slot* slot = nullptr;
    for (Slot& s : slots)
      if (s.bytes == b.bytes && s.last < b.first && (!slot || s.last > slot->last)) slot = &s;
    if (!slot) {
      slots.push_back({b.bytes, total, 0});
      slot = &slots.back();
      total = arena.add(total, b.bytes);
    }
    slot->last = b.last;
    for (BufferId m : b.members) plan.buffers[m].offset = slot->offset;
  }
  plan.arena_bytes = total;

  std::vector<int64_t> change(p.items.size() + 2, 0);
  for (const Block& b : fixed) {
    change[static_cast<size_t>(b.first)] += b.size;
    change[static_cast<size_t>(b.last) + 1] -= b.size;
  }
  int64_t live = 0;
  for (int64_t c : change) plan.peak_bytes = std::max(plan.peak_bytes, live += c);
  return plan;
}

}  // namespace braze::schedule
