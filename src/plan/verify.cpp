#include <algorithm>

#include "base/check.h"
#include "plan/plan.h"
#include "symbolic/given_symbol.h"

namespace braze::plan {
namespace {

class Verifier {
 public:
  explicit Verifier(const Plan& plan) : plan_(plan), state_(plan.buffers.size(), State::Ready) {}

  void run() {
    for (const auto& [symbol, origin] : plan_.size_symbols)
      rule(plan_.arena->kind(symbol) == sym::Kind::Symbol &&
               (origin.first == sym::kGivenSymbol || origin.first < plan_.inputs),
           "a size symbol is given, or read from an input");
    for (size_t b = 0; b < plan_.buffers.size(); ++b) buffer(b);
    for (const Step& s : plan_.steps)
      if (auto* a = std::get_if<Allocate>(&s)) {
        rule(a->buffer < plan_.buffers.size(), "an Allocate step names a buffer");
        state_[a->buffer] = State::Empty;
      }
    for (const Tuned& t : plan_.tuned) check(t);
    for (; at_ < plan_.steps.size(); ++at_) {
      std::visit([&](auto& step) { check(step); }, plan_.steps[at_]);
      // What a kernel reads is still there after the last of the steps that it stands for.
      for (const Tuned& t : plan_.tuned)
        if (t.steps.back() == at_)
          for (const TemplateKernel& k : t.kernels)
            for (uint32_t b : k.buffers) read(b);
    }
    for (auto& w : plan_.writebacks) {
      rule(w.input < plan_.inputs, "a writeback goes to an input");
      read(w.from.buffer.index);
      const Buffer& from = plan_.buffers[w.from.buffer.index];
      if (w.through)
        rule(from.where == Where::Input && from.index == w.input, "what is written at once is on the input's memory");
    }
    for (auto& o : plan_.outputs) {
      if (o.kind == loop::Output::Kind::Input) rule(o.input < plan_.inputs, "an output that is an input names one");
      if (o.kind != loop::Output::Kind::View) continue;
      read(o.view.buffer.index);
      rule(plan_.buffers[o.view.buffer.index].where != Where::Arena, "an output does not live in the arena");
    }
  }

 private:
  enum class State : uint8_t { Ready, Empty, Dead };

  void rule(bool holds, const char* what) const {
    if (!holds)
      throw InternalError("plan, step " + std::to_string(at_) + ": rule broken: " + what + "\n" + plan_.describe());
  }

  void buffer(size_t i) {
    const Buffer& b = plan_.buffers[i];
    if (b.where == Where::Input) rule(b.index < plan_.inputs, "an input buffer names an input");
    if (b.where == Where::Adopted) state_[i] = State::Empty;
    if (b.where != Where::Arena) return;
    rule(b.device.type == plan_.arena_device.type &&
             (b.device.type == DeviceType::CPU || b.device == plan_.arena_device),
         "an arena buffer is on the arena's device");
    auto offset = plan_.arena->as_const(b.offset), bytes = plan_.arena->as_const(b.bytes),
         total = plan_.arena->as_const(plan_.arena_bytes);
    if (offset) rule(*offset >= 0 && *offset % 64 == 0, "an arena offset is a multiple of 64");
    if (offset && bytes && total) rule(*offset + *bytes <= *total, "an arena buffer lies inside the arena");
  }

  void read(uint32_t b) const {
    rule(b < plan_.buffers.size(), "a step names a buffer");
    rule(state_[b] == State::Ready, "a buffer is read between its definition and its release");
  }

  void check(const Tuned& t) const {
    rule(!t.steps.empty() && std::is_sorted(t.steps.begin(), t.steps.end()),
         "steps that kernels stand for are in order");
    rule(t.call < t.steps.size(), "one of the steps is the call");
    for (uint32_t b : t.written) rule(b < plan_.buffers.size(), "kernels write buffers");
    for (size_t i = 0; i < t.steps.size(); ++i) {
      rule(t.steps[i] < plan_.steps.size(), "kernels stand for steps that are there");
      const Step& s = plan_.steps[t.steps[i]];
      rule(i == t.call ? std::holds_alternative<Extern>(s) : std::holds_alternative<Launch>(s),
           "kernels stand for one call, and for launches");
    }
    for (const TemplateKernel& k : t.kernels)
      rule(k.arguments.size() == k.buffers.size() + 1, "a kernel of a template takes its buffers and the error word");
  }
  void check(const Launch& l) {
    rule(l.kernel < plan_.kernels.size(), "a launch names a kernel");
    const Kernel& k = plan_.kernels[l.kernel];
    rule(k.blob < plan_.blobs.size(), "a kernel names a blob");
    rule(l.buffers.size() == k.pointers && l.sizes.size() == k.sizes,
         "a launch has as many arguments as its kernel takes");
    for (uint32_t b : l.buffers) read(b);
  }
  void argument(const loop::ExternArg& a, size_t views) const {
    auto known = [&](loop::ViewRef v) {
      rule(!v.valid() || v.index < views, "an argument of a call is one of its views");
    };
    if (auto* v = std::get_if<loop::ViewRef>(&a)) known(*v);
    if (auto* list = std::get_if<std::vector<loop::ViewRef>>(&a)) std::for_each(list->begin(), list->end(), known);
  }
  void check(const Extern& e) {
    for (auto& v : e.call.views) read(v.buffer.index);
    for (auto& a : e.call.args) argument(a, e.call.views.size());
    for (auto& v : e.call.outputs) {
      if (!v.buffer.valid()) continue;
      uint32_t b = v.buffer.index;
      rule(b < plan_.buffers.size(), "a call names a buffer");
      if (is_given(e.call, b)) {
        read(b);
        continue;
      }
      rule(plan_.buffers[b].where != Where::Input, "inputs are written by writebacks alone");
      if (e.call.preallocated) {
        read(b);
      } else {
        rule(plan_.buffers[b].where == Where::Adopted, "results of an allocating call are adopted");
        rule(state_[b] == State::Empty, "an adopted buffer is defined once");
        state_[b] = State::Ready;
      }
    }
  }
  // Whether the call writes to memory that it is given: this buffer, or an input that is the buffer's memory.
  bool is_given(const loop::ExternCall& call, uint32_t b) const {
    const Buffer& made = plan_.buffers[b];
    return std::any_of(call.views.begin(), call.views.end(), [&](const loop::View& v) {
      const Buffer& given = plan_.buffers.at(v.buffer.index);
      return v.buffer.index == b ||
             (given.where == Where::Input && made.where == Where::Input && given.index == made.index);
    });
  }
  void check(const Allocate& a) {
    rule(plan_.buffers[a.buffer].where == Where::Output && state_[a.buffer] == State::Empty,
         "an Output buffer is allocated once");
    state_[a.buffer] = State::Ready;
  }
  void check(const Release& r) {
    read(r.buffer);
    rule(plan_.buffers[r.buffer].where != Where::Arena, "the arena is released as a whole");
    state_[r.buffer] = State::Dead;
  }

  const Plan& plan_;
  std::vector<State> state_;
  size_t at_ = 0;
};

}  // namespace

void verify(const Plan& plan) { Verifier(plan).run(); }

}  // namespace braze::plan
