#include "schedule/concurrent.h"

#include <algorithm>

#include "loop/analysis.h"

namespace braze::schedule {
namespace {

using loop::BufferId;
using Kind = Placement::Kind;

bool is_gpu(const std::optional<Device>& d) { return d && d->type == DeviceType::CUDA; }

class Runs {
 public:
  Runs(const loop::Program& program, const MemoryPlan& memory)
      : p_(program), memory_(memory), dependencies_(loop::dependencies(program)) {
    for (const loop::Item& item : program.items) effects_.push_back(loop::effects(item));
  }

  bool may_join(const std::vector<uint32_t>& run, uint32_t item) const {
    return std::none_of(run.begin(), run.end(), [&](uint32_t other) { return conflict(other, item); });
  }

 private:
  bool conflict(uint32_t earlier, uint32_t later) const {
    const std::vector<uint32_t>& needs = dependencies_[later];
    if (std::binary_search(needs.begin(), needs.end(), earlier)) return true;
    const loop::Effects &a = effects_[earlier], &b = effects_[later];
    return meet(a.writes, b.reads) || meet(a.writes, b.writes) || meet(a.reads, b.writes);
  }

  bool meet(const std::vector<BufferId>& some, const std::vector<BufferId>& others) const {
    for (BufferId x : some)
      for (BufferId y : others)
        if (share_memory(x, y)) return true;
    return false;
  }

  bool share_memory(BufferId x, BufferId y) const {
    if (x == y) return true;
    const Placement &a = memory_.buffers[x], &b = memory_.buffers[y];
    if (a.kind != b.kind) return false;
    switch (a.kind) {
      case Kind::None:
      case Kind::Output:
      case Kind::Adopted: return false;  // an allocation each
      case Kind::Input: return a.input == b.input;
      case Kind::Arena: break;
    }
    auto end = [&](const Placement& p) { return p_.arena->add(p.offset, p.bytes); };
    auto first = p_.arena->as_const(a.offset), first_end = p_.arena->as_const(end(a));
    auto second = p_.arena->as_const(b.offset), second_end = p_.arena->as_const(end(b));
    if (!first || !first_end || !second || !second_end) return true;
    return *first < *second_end && *second < *first_end;
  }

  const loop::Program& p_;
  const MemoryPlan& memory_;
  const std::vector<std::vector<uint32_t>> dependencies_;
  std::vector<loop::Effects> effects_;  // per item
};

}  // namespace

std::vector<std::vector<uint32_t>> concurrent_nests(const loop::Program& p, const MemoryPlan& memory,
                                                    const std::vector<bool>& apart) {
  std::vector<std::vector<uint32_t>> runs;
  std::optional<Runs> which;    // made for the first two neighbours on a GPU
  std::vector<uint32_t> items;  // of the last run
  std::optional<Device> device;
  bool open = false;  // another nest may join it
  uint32_t number = 0;
  for (uint32_t i = 0; i < p.items.size(); ++i) {
    auto* nest = std::get_if<loop::Nest>(&p.items[i]);
    const bool alone = !nest || (!apart.empty() && apart[i]);
    auto own = nest ? loop::device_of(p, *nest) : std::nullopt;
    const bool gpu = !alone && is_gpu(own);
    if (gpu && open && own->index == device->index) {
      if (!which) which.emplace(p, memory);
      if (which->may_join(items, i)) {
        runs.back().push_back(number++);
        items.push_back(i);
        continue;
      }
    }
    open = gpu;
    items = {i};
    device = own;
    if (nest) runs.push_back({number++});
  }
  return runs;
}

}  // namespace braze::schedule
