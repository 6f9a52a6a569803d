#include "schedule/update_inputs.h"

#include <algorithm>
#include <optional>

#include "loop/analysis.h"
#include "schedule/coalesce.h"
#include "schedule/input_memory.h"

namespace braze::schedule {
namespace {

using loop::BufferId;
using loop::BufferKind;
using loop::Nest;
using loop::Program;

class Update {
 public:
  Update(const Program& p, const loop::Writeback& w) : p_(p), w_(w), made_(w.from.buffer) {}

  // The copy that goes, by its place among the items.
  std::optional<size_t> copy() {
    const loop::Buffer& b = p_.buffers[made_];
    if (w_.in_place || b.kind != BufferKind::Temp || !is_whole(p_, w_.from)) return std::nullopt;
    for (const loop::Writeback& other : p_.writebacks)
      if (&other != &w_ && (other.from.buffer == made_ || is_input(other.from.buffer))) return std::nullopt;
    for (const loop::Output& o : p_.outputs)
      if (o.kind == loop::Output::Kind::View ? is_input(o.view.buffer)
                                             : o.kind == loop::Output::Kind::Input && o.input == w_.input)
        return std::nullopt;
    std::optional<size_t> copy;
    size_t written = 0, first_read = p_.items.size();
    for (size_t i = 0; i < p_.items.size(); ++i) {
      loop::Effects e = loop::effects(p_.items[i]);
      bool reads_input = std::any_of(e.reads.begin(), e.reads.end(), [&](BufferId id) { return is_input(id); });
      if (reads_input) {
        auto c = copy ? std::nullopt : whole_copy(p_, p_.items[i]);
        if (!c || c->to != made_ || p_.buffers[c->from].kind != BufferKind::Input ||
            !same_layout(p_.buffers[c->from], b) || written)
          return std::nullopt;
        copy = i;
        continue;
      }
      if (contains(e.reads, made_)) first_read = std::min(first_read, i);
      if (!contains(e.writes, made_)) continue;
      if (!copy || first_read <= i || !stores_plainly(p_.items[i])) return std::nullopt;
      ++written;
    }
    return written ? copy : std::nullopt;
  }

 private:
  bool is_input(BufferId id) const { return stands_for_input(p_.buffers[id], w_.input); }
  bool stores_plainly(const loop::Item& item) const {
    auto* nest = std::get_if<Nest>(&item);
    if (!nest) return false;
    for (const auto& a : loop::accesses(*nest))
      if (a.buffer == made_ && (!a.write || a.atomic)) return false;
    return true;
  }

  const Program& p_;
  const loop::Writeback& w_;
  BufferId made_;
};

}  // namespace

void update_inputs(Program& p) {
  for (loop::Writeback& w : p.writebacks)
    if (std::optional<size_t> copy = Update(p, w).copy()) {
      p.items.erase(p.items.begin() + static_cast<std::ptrdiff_t>(*copy));
      w.in_place = true;
    }
}

}  // namespace braze::schedule
