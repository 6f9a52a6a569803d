#include "schedule/schedule.h"

#include <algorithm>

#include "base/check.h"
#include "base/strict.h"
#include "loop/analysis.h"
#include "schedule/call_in_place.h"
#include "schedule/check_updates.h"
#include "schedule/clean.h"
#include "schedule/coalesce.h"
#include "schedule/fuse.h"
#include "schedule/group.h"
#include "schedule/index.h"
#include "schedule/mapping.h"
#include "schedule/normalise.h"
#include "schedule/online_softmax.h"
#include "schedule/read_ahead.h"
#include "schedule/share_rows.h"
#include "schedule/sink_updates.h"
#include "schedule/split_axis.h"
#include "schedule/split_reduce.h"
#include "schedule/spread_updates.h"
#include "schedule/update_inputs.h"

namespace braze::schedule {
namespace {

using loop::BufferId;
using loop::Item;
using loop::Nest;
using loop::Program;

// For each Temp buffer the only item that touches it; UINT32_MAX: several, or the program's outputs.
std::vector<uint32_t> only_users(const Program& p) {
  constexpr uint32_t kNobody = UINT32_MAX - 1, kMany = UINT32_MAX;
  std::vector<uint32_t> user(p.buffers.size(), kNobody);
  auto touch = [&](BufferId b, uint32_t i) {
    user[b.index] = user[b.index] == kNobody || user[b.index] == i ? i : kMany;
  };
  for (uint32_t i = 0; i < p.items.size(); ++i) {
    auto e = loop::effects(p.items[i]);
    for (BufferId b : e.reads) touch(b, i);
    for (BufferId b : e.writes) touch(b, i);
  }
  for (const loop::Output& o : p.outputs)
    if (o.kind == loop::Output::Kind::View) user[o.view.buffer.index] = kMany;
  for (const loop::Writeback& w : p.writebacks) user[w.from.buffer.index] = kMany;
  for (size_t i = 0; i < p.buffers.size(); ++i)
    if (p.buffers[BufferId(i)].kind != loop::BufferKind::Temp) user[i] = kMany;
  return user;
}

// Scratch rows of a GPU kernel live in its registers, where all stages have the same axes, or in the little memory of a
// block.
bool fits_a_block(const Target& target, const Nest& n, sym::ExprArena& arena) {
  if (!target.is_gpu()) return true;
  // Elements: half of the registers, or a few rows of 8 bytes each.
  const int64_t in_registers = target.registers / 2, shared = target.shared_bytes / (3 * 8);
  int64_t longest = 0;
  for (const loop::Stage& s : n.stages)
    if (!s.axes.empty()) longest = std::max(longest, arena.as_const(volume(arena, s.axes)).value_or(INT64_MAX));
  return longest <= (same_axes(n) ? in_registers : shared);
}

template <class F>
void for_each_nest(Program& p, F&& f) {
  for (uint32_t i = 0; i < p.items.size(); ++i)
    if (auto* n = std::get_if<Nest>(&p.items[i])) f(i, *n);
}

void verify_after(const Program& p, const char* step) {
  if (!verifying()) return;
  try {
    loop::verify(p);
  } catch (const InternalError& e) {
    throw InternalError(std::string("after ") + step + ": " + e.what());
  }
}

}  // namespace

Program schedule(const Program& lowered, const Options& options, const Targets& targets, const Takes& takes) {
  Program p = lowered;
  sym::ExprArena& arena = *p.arena;
  const std::vector<char> nothing(p.buffers.size(), 0);
  for_each_nest(p, [&](uint32_t, Nest& n) {
    normalise(arena, n, options.reordering);
    simplify(p, n, nothing);
  });
  verify_after(p, "normalise");
  spread_updates(p, targets);
  verify_after(p, "spread_updates");
  coalesce_copies(p);
  verify_after(p, "coalesce_copies");
  update_inputs(p);
  verify_after(p, "update_inputs");
  check_updates(p);
  verify_after(p, "check_updates");
  if (options.patterns) online_softmax(p, targets);
  verify_after(p, "online_softmax");
  split_reductions(p, targets, options.codegen != Codegen::Triton);  // its interpreter takes no computed bound
  verify_after(p, "split_reductions");
  sink_updates(p);
  verify_after(p, "sink_updates");
  p.items = fuse_items(p, options, targets);
  verify_after(p, "fuse_items");

  std::vector<uint32_t> user = only_users(p);
  std::vector<char> mine(p.buffers.size(), 0);
  for_each_nest(p, [&](uint32_t i, Nest& n) {
    const Target& target = target_of(targets, p, n);
    for (size_t b = 0; b < mine.size(); ++b) mine[b] = user[b] == i;
    merge_stages(arena, n);
    simplify(p, n, mine);
    normalise(arena, n, options.reordering);
    choose_mapping(target, p, n, options);
    auto finish = [&](bool rows) {
      if (rows) make_local(p, n, mine);
      make_rows(arena, n);
      if (!target.is_gpu()) split_axis(p, n);
      hoist(arena, n);
      merge_stages(arena, n);
      simplify(p, n, std::vector<char>(p.buffers.size(), 0));
      if (rows) {
        share_rows(p, n);
        simplify(p, n, std::vector<char>(p.buffers.size(), 0));
      }
      choose_mapping(target, p, n, options);
    };
    // A scratch row belongs to one outer point: not where several run as one vector.
    const bool rows =
        !is_pointwise(n) && n.mapping.vector != loop::Mapping::Vector::Outer && fits_a_block(target, n, arena);
    if (!rows || !takes || !target.is_gpu()) return finish(rows);
    Nest before = n;
    std::vector<std::pair<BufferId, loop::Buffer>> own;
    for (size_t b = 0; b < mine.size(); ++b)
      if (mine[b]) own.emplace_back(b, p.buffers[BufferId(b)]);
    finish(true);
    if (takes(p, n)) return;
    n = std::move(before);
    for (auto& [b, buffer] : own) p.buffers[b] = std::move(buffer);
    finish(false);
  });
  std::erase_if(p.items, [](const Item& item) {
    auto* n = std::get_if<Nest>(&item);
    return n && n->stages.empty();
  });
  write_calls_in_place(p, options);
  read_ahead(p, targets);
  return p;
}

}  // namespace braze::schedule
