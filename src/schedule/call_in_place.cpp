#include "schedule/call_in_place.h"

#include <algorithm>

#include "graph/written.h"
#include "loop/analysis.h"
#include "schedule/input_memory.h"

namespace braze::schedule {
namespace {

using loop::BufferId;
using loop::BufferKind;
using loop::ExternCall;
using loop::Program;
using loop::View;

class CallInPlace {
 public:
  CallInPlace(Program& p, const Options& options) : p_(p), tuned_(options.autotune_seconds > 0) {}

  void run() {
    for (size_t i = 0; i < p_.items.size(); ++i) {
      auto* call = std::get_if<ExternCall>(&p_.items[i]);
      if (!call || call->preallocated) continue;
      std::vector<int32_t> operands = graph::written_operands(call->list_sizes);
      for (size_t k = 0; k < operands.size() && k < call->outputs.size(); ++k)
        if (operands[k] >= 0) join(i, call->views[static_cast<size_t>(operands[k])], call->outputs[k]);
    }
  }

 private:
  enum class When : uint8_t { Before, Ever };

  void join(size_t item, const View& operand, View& copy) {
    BufferId given = operand.buffer, made = copy.buffer;
    if (given == made || !is_whole(p_, operand) || views_of(item, given) != 1) return;
    if (made.valid() && (!is_whole(p_, copy) || !same_layout(p_.buffers[given], p_.buffers[made]))) return;
    const BufferKind kind = p_.buffers[given].kind;
    if (kind == BufferKind::Temp && !handed_out(given) && !is_read(given, item, When::Ever)) {
      if (!made.valid())
        copy = operand;
      else if (p_.buffers[made].kind == BufferKind::Temp || p_.buffers[made].kind == BufferKind::Output)
        replace(made, given);
    } else if (kind == BufferKind::Input && made.valid()) {
      join_input(item, given, made);
    }
  }

  void join_input(size_t item, BufferId given, BufferId made) {
    const uint32_t input = p_.buffers[given].input;
    loop::Writeback* back = nullptr;
    for (loop::Writeback& w : p_.writebacks) {
      if (w.from.buffer == made && w.input == input && !back) {
        back = &w;
      } else if (w.from.buffer == made || w.input == input || stands_for_input(p_.buffers[w.from.buffer], input)) {
        return;
      }
    }
    if (!back || back->in_place || p_.buffers[made].kind != BufferKind::Temp || !is_whole(p_, back->from)) return;
    for (size_t i = 0; i < p_.buffers.size(); ++i) {
      BufferId id(i);
      if (!stands_for_input(p_.buffers[id], input)) continue;
      // Kernels that are tuned read later what the steps that they stand for read.
      if (handed_out(id) || is_read(id, item, tuned_ ? When::Ever : When::Before) ||
          views_of(item, id) != (id == given))
        return;
    }
    if (writers(made) == 1) back->in_place = true;
  }

  size_t views_of(size_t item, BufferId b) const {
    const auto& views = std::get<ExternCall>(p_.items[item]).views;
    return static_cast<size_t>(std::count_if(views.begin(), views.end(), [&](const View& v) { return v.buffer == b; }));
  }

  size_t writers(BufferId b) const {
    size_t n = 0;
    for (const loop::Item& item : p_.items) {
      loop::Effects e = loop::effects(item);
      n += std::find(e.writes.begin(), e.writes.end(), b) != e.writes.end();
    }
    return n;
  }

  // By others than this item: Before, what comes earlier may read it.
  bool is_read(BufferId b, size_t item, When when) const {
    for (size_t i = when == When::Before ? item + 1 : 0; i < p_.items.size(); ++i) {
      if (i == item) continue;
      loop::Effects e = loop::effects(p_.items[i]);
      auto in = [&](const std::vector<BufferId>& list) { return std::find(list.begin(), list.end(), b) != list.end(); };
      if (in(e.reads) || (i > item && in(e.writes))) return true;
    }
    return false;
  }

  bool handed_out(BufferId b) const {
    return std::any_of(
               p_.outputs.begin(), p_.outputs.end(),
               [&](const loop::Output& o) { return o.kind == loop::Output::Kind::View && o.view.buffer == b; }) ||
           std::any_of(p_.writebacks.begin(), p_.writebacks.end(),
                       [&](const loop::Writeback& w) { return w.from.buffer == b; });
  }

  void replace(BufferId from, BufferId to) {
    if (p_.buffers[from].kind == BufferKind::Output) p_.buffers[to].kind = BufferKind::Output;
    auto put = [&](BufferId& b) {
      if (b == from) b = to;
    };
    for (loop::Item& item : p_.items) {
      if (auto* n = std::get_if<loop::Nest>(&item)) {
        for (loop::Stage& s : n->stages)
          for (loop::LoopOp& op : s.ops)
            if (op.code == loop::OpCode::Load || op.code == loop::OpCode::Store) put(op.buffer);
      } else {
        auto& call = std::get<ExternCall>(item);
        for (auto* views : {&call.views, &call.outputs})
          for (View& v : *views) put(v.buffer);
      }
    }
    for (loop::Output& o : p_.outputs)
      if (o.kind == loop::Output::Kind::View) put(o.view.buffer);
    for (loop::Writeback& w : p_.writebacks) put(w.from.buffer);
  }

  Program& p_;
  bool tuned_;
};

}  // namespace

void write_calls_in_place(Program& program, const Options& options) { CallInPlace(program, options).run(); }

}  // namespace braze::schedule
