#include "schedule/read_ahead.h"

#include <algorithm>
#include <map>
#include <optional>

#include "loop/analysis.h"
#include "schedule/index.h"
#include "schedule/mapping.h"

namespace braze::schedule {

void read_ahead(loop::Program& p, const Targets& targets) {
  // Buffers in the memory of an input, now or when memory is planned (write_through.h).
  std::vector<char> of_inputs(p.buffers.size(), 0);
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    loop::BufferKind kind = p.buffers[loop::BufferId(i)].kind;
    of_inputs[i] = kind == loop::BufferKind::Input || kind == loop::BufferKind::Constant;
  }
  const std::vector<char> given = of_inputs;
  for (const loop::Writeback& w : p.writebacks) of_inputs[w.from.buffer.index] = 1;

  std::map<int, bool> steady;  // by GPU: nothing that still runs there writes an input
  // The last item that writes an input, where a nest may share its launch (concurrent.h).
  std::optional<uint32_t> writer;
  std::optional<std::vector<std::vector<uint32_t>>> dependencies;
  auto follows_writer = [&](uint32_t item) {
    if (!writer) return true;
    if (!dependencies) dependencies = loop::dependencies(p);
    const std::vector<uint32_t>& needs = (*dependencies)[item];
    return std::binary_search(needs.begin(), needs.end(), *writer);
  };
  for (uint32_t i = 0; i < p.items.size(); ++i) {
    loop::Item& item = p.items[i];
    loop::Effects e = loop::effects(item);
    bool writes = std::any_of(e.writes.begin(), e.writes.end(), [&](loop::BufferId b) { return of_inputs[b.index]; });
    auto* nest = std::get_if<loop::Nest>(&item);
    if (writes) steady.clear();
    if (writes || !nest) writer = nest ? std::optional(i) : std::nullopt;
    if (!nest || !target_of(targets, p, *nest).can_launch_early()) continue;
    bool& here = steady[Targets::number_of(*loop::device_of(p, *nest))];
    bool reads = std::any_of(e.reads.begin(), e.reads.end(), [&](loop::BufferId b) { return given[b.index]; });
    nest->mapping.ahead = here && !writes && reads;
    // A kernel that surely runs has seen the end of all before it; a call may launch nothing, and a nest that shares
    // the launch of one that writes sees nothing of it.
    auto points = p.arena->as_const(volume(*p.arena, nest->outer));
    here = !writes && (here || (points && *points > 0 && follows_writer(i)));
  }
}

}  // namespace braze::schedule
