#include "schedule/spread_updates.h"

#include <algorithm>

#include "loop/analysis.h"
#include "schedule/mapping.h"

namespace braze::schedule {
namespace {

using loop::LoopOp;
using loop::OpCode;

// One stage that stores where the data says, or adds, and reads nothing of that.
bool is_update(const loop::Program& p, const loop::Nest& nest) {
  if (nest.stages.size() != 1 || nest.stages[0].axes.empty()) return false;
  bool updates = false;
  for (const LoopOp& op : nest.stages[0].ops) {
    if (loop::accumulates(op.code)) return false;
    if (op.code == OpCode::Store) updates = updates || op.atomic_add || loop::is_indirect(*p.arena, op.index);
  }
  if (!updates) return false;
  std::vector<loop::Access> all = loop::accesses(nest);
  return std::none_of(all.begin(), all.end(), [&](const loop::Access& read) {
    return !read.write && std::any_of(all.begin(), all.end(), [&](const loop::Access& write) {
      return write.write && write.buffer == read.buffer;
    });
  });
}

}  // namespace

void spread_updates(loop::Program& p, const Targets& targets) {
  for (loop::Item& item : p.items) {
    auto* nest = std::get_if<loop::Nest>(&item);
    if (!nest || !is_update(p, *nest) || !target_of(targets, p, *nest).is_gpu()) continue;
    std::vector<loop::Axis>& inner = nest->stages[0].axes;
    nest->outer.insert(nest->outer.begin(), inner.begin(), inner.end());
    inner.clear();
  }
}

}  // namespace braze::schedule
