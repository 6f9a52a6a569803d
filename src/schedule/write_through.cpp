#include "schedule/write_through.h"

#include <algorithm>

#include "loop/analysis.h"
#include "schedule/index.h"
#include "schedule/input_memory.h"

namespace braze::schedule {

using loop::BufferId;
using loop::BufferKind;
using loop::Nest;

bool in_place(sym::ExprArena& arena, const Nest& n, BufferId dying, BufferId made) {
  uint32_t at = UINT32_MAX;
  size_t op_at = 0;
  Expr f;
  auto all = loop::accesses(n);
  for (const auto& a : all) {
    if (a.buffer == dying && a.write) return false;
    if (a.buffer != made) continue;
    if (!a.write || a.atomic || at != UINT32_MAX) return false;  // one plain store, no loads
    at = a.stage;
    op_at = a.op;
    f = a.index;
  }
  if (at == UINT32_MAX) return false;
  std::vector<Axis> box = n.outer;
  box.insert(box.end(), n.stages[at].axes.begin(), n.stages[at].axes.end());
  if (!injective(arena, f, box)) return false;
  for (const auto& a : all) {
    if (a.buffer != dying) continue;
    if (a.index != f || a.stage > at || (a.stage == at && a.op > op_at)) return false;
    if (!same_axes(n.stages[a.stage].axes, n.stages[at].axes)) return false;
  }
  return true;
}

namespace {

bool is_of_gpu(const loop::Program& p, const Nest& nest) {
  auto device = loop::device_of(p, nest);
  return device && device->type == DeviceType::CUDA;
}

// A fault that a kernel found is known when all of them have run; one on a GPU not before the next call, when all that
// the program writes is written in any case.
bool reports_faults(const loop::Program& p) {
  for (const loop::Item& item : p.items)
    if (auto* nest = std::get_if<Nest>(&item); nest && !is_of_gpu(p, *nest))
      for (const loop::Stage& stage : nest->stages)
        for (const loop::LoopOp& op : stage.ops)
          if (loop::may_fault(op)) return true;
  return false;
}

// What is made when its size is known may be too much for the memory that there is.
bool allocates_late(const loop::Program& p) {
  for (const loop::Buffer& b : p.buffers)
    for (sym::Expr e : b.sizes)
      if (p.arena->depends_on_data(e)) return true;
  return false;
}

class Search {
 public:
  explicit Search(const loop::Program& p)
      : p_(p), writers_(p.buffers.size(), 0), maker_(p.buffers.size(), -1), last_read_(p.buffers.size(), -1) {
    for (size_t i = 0; i < p.items.size(); ++i) {
      loop::Effects e = loop::effects(p.items[i]);
      auto at = static_cast<int32_t>(i);
      for (BufferId b : e.reads) last_read_[b.index] = at;
      for (BufferId b : e.writes) ++writers_[b.index], maker_[b.index] = at;
      if (std::holds_alternative<loop::ExternCall>(p.items[i])) last_call_ = at;
    }
    auto count = static_cast<int32_t>(p.items.size());
    for (const loop::Output& o : p.outputs)
      if (o.kind == loop::Output::Kind::View) last_read_[o.view.buffer.index] = count;
  }

  bool may(const loop::Writeback& w) {
    BufferId made = w.from.buffer;
    const loop::Buffer& b = p_.buffers[made];
    if (w.in_place || b.kind != BufferKind::Temp || writers_[made.index] != 1) return false;
    int32_t at = maker_[made.index];
    auto* nest = std::get_if<Nest>(&p_.items[static_cast<size_t>(at)]);
    if (!nest || last_call_ > at || !is_whole(p_, w.from)) return false;
    // Another writeback of the same buffer would read what this input has become.
    for (const loop::Writeback& other : p_.writebacks)
      if (&other != &w && (other.from.buffer == made || is_input(other.from.buffer, w.input))) return false;
    bool looked_at = false;  // its sizes and strides are known by a buffer that stands for it
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      BufferId given(i);
      if (!is_input(given, w.input)) continue;
      if (looked_at || p_.buffers[given].kind != BufferKind::Input || !same_layout(p_.buffers[given], b)) return false;
      looked_at = true;
      if (last_read_[i] > at) return false;
      if (last_read_[i] == at && !in_place(*p_.arena, *nest, given, made)) return false;
    }
    return looked_at;
  }

 private:
  bool is_input(BufferId id, uint32_t input) const { return stands_for_input(p_.buffers[id], input); }

  const loop::Program& p_;
  std::vector<int> writers_;
  std::vector<int32_t> maker_, last_read_;
  int32_t last_call_ = -1;
};

}  // namespace

std::vector<bool> writes_through(const loop::Program& program) {
  std::vector<bool> out(program.writebacks.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = program.writebacks[i].in_place;
  if (out.empty() || reports_faults(program) || allocates_late(program)) return out;
  Search search(program);
  for (size_t i = 0; i < out.size(); ++i) out[i] = out[i] || search.may(program.writebacks[i]);
  return out;
}

}  // namespace braze::schedule
