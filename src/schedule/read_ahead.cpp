#include "schedule/read_ahead.h"

#include <algorithm>
#include <map>

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
  for (loop::Item& item : p.items) {
    loop::Effects e = loop::effects(item);
    bool writes = std::any_of(e.writes.begin(), e.writes.end(), [&](loop::BufferId b) { return of_inputs[b.index]; });
    if (writes) steady.clear();
    auto* nest = std::get_if<loop::Nest>(&item);
    if (!nest || !target_of(targets, p, *nest).can_launch_early()) continue;
    bool& here = steady[Targets::number_of(*loop::device_of(p, *nest))];
    bool reads = std::any_of(e.reads.begin(), e.reads.end(), [&](loop::BufferId b) { return given[b.index]; });
    nest->mapping.ahead = here && !writes && reads;
    // A kernel that surely runs has seen the end of all before it; a call may launch nothing.
    auto points = p.arena->as_const(volume(*p.arena, nest->outer));
    here = !writes && (here || (points && *points > 0));
  }
}

}  // namespace braze::schedule
