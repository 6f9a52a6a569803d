#include "schedule/sink_updates.h"

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <vector>

#include "loop/analysis.h"
#include "schedule/fuse.h"

namespace braze::schedule {
namespace {

using loop::BufferId;
using loop::Item;
using loop::Nest;
using loop::Program;

constexpr size_t kMostBuffers = 32;  // of one kernel

bool is_single(const Nest& n) {
  return n.outer.empty() &&
         std::all_of(n.stages.begin(), n.stages.end(), [](const loop::Stage& s) { return s.axes.empty(); });
}

// It computes nothing but writebacks, from inputs that no item after it changes.
bool can_be_last(const Program& p, size_t i, const std::vector<loop::Effects>& effects,
                 const std::unordered_set<uint32_t>& written_back) {
  const auto* n = std::get_if<Nest>(&p.items[i]);
  if (!n || !is_single(*n) || effects[i].writes.empty()) return false;
  auto is_input = [&](BufferId b) { return p.buffers[b].kind == loop::BufferKind::Input; };
  for (BufferId b : effects[i].reads)
    if (!is_input(b)) return false;
  for (BufferId b : effects[i].writes)
    if (!written_back.count(b.index)) return false;
  for (size_t k = i + 1; k < p.items.size(); ++k) {
    const loop::Effects& later = effects[k];
    if (loop::have_common(effects[i].reads, later.writes) || loop::have_common(effects[i].writes, later.reads) ||
        loop::have_common(effects[i].writes, later.writes))
      return false;
  }
  return true;
}

}  // namespace

void sink_updates(Program& p) {
  std::unordered_set<uint32_t> written_back;
  for (const loop::Writeback& w : p.writebacks) written_back.insert(w.from.buffer.index);
  if (written_back.empty()) return;
  for (const loop::Output& o : p.outputs)
    if (o.kind == loop::Output::Kind::View) written_back.erase(o.view.buffer.index);
  std::vector<loop::Effects> effects;
  for (const Item& item : p.items) effects.push_back(loop::effects(item));
  std::vector<Item> items, last;
  size_t buffers = 0;  // of the last one
  std::optional<Device> device;
  for (size_t i = 0; i < p.items.size(); ++i) {
    if (!can_be_last(p, i, effects, written_back)) {
      items.push_back(std::move(p.items[i]));
      continue;
    }
    size_t own = effects[i].reads.size() + effects[i].writes.size();
    auto& nest = std::get<Nest>(p.items[i]);
    auto on = loop::device_of(p, nest);
    std::optional<Nest> both;
    if (!last.empty() && device == on && buffers + own <= kMostBuffers)
      both = fuse(*p.arena, std::get<Nest>(last.back()), nest);
    if (both) {
      last.back() = std::move(*both);
      buffers += own;
    } else {
      last.push_back(std::move(p.items[i]));
      buffers = own;
      device = on;
    }
  }
  p.items = std::move(items);
  for (Item& item : last) p.items.push_back(std::move(item));
}

}  // namespace braze::schedule
