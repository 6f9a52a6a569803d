#include "schedule/schedule.h"

#include "schedule/clean.h"
#include "schedule/mapping.h"
#include "schedule/normalise.h"

namespace braze::schedule {

loop::Program schedule(const loop::Program& lowered, const Options&) {
  loop::Program p = lowered;
  sym::ExprArena& arena = *p.arena;
  std::vector<char> none(p.buffers.size(), 0);
  for (loop::Item& item : p.items) {
    auto* n = std::get_if<loop::Nest>(&item);
    if (!n) continue;
    normalise(arena, *n);
    simplify(p, *n, none);
    choose_mapping(arena, *n);
  }
  return p;
}

}  // namespace braze::schedule
