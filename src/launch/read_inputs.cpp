#include "launch/read_inputs.h"

#include <algorithm>

namespace braze::launch {

std::optional<uint32_t> buffer_of(const plan::Plan& p, size_t input) {
  for (uint32_t i = 0; i < p.buffers.size(); ++i)
    if (p.buffers[i].where == plan::Where::Input && p.buffers[i].index == input) return i;
  return std::nullopt;
}

std::vector<bool> reads_in_memory(const plan::Plan& p, size_t inputs,
                                  const std::function<bool(size_t step, size_t k)>& reads) {
  std::vector<bool> out(inputs, false);
  auto read = [&](uint32_t buffer) {
    const plan::Buffer& b = p.buffers[buffer];
    if (b.where == plan::Where::Input) out.at(b.index) = true;
  };
  for (size_t i = 0; i < p.steps.size(); ++i) {
    if (auto* launch = std::get_if<plan::Launch>(&p.steps[i])) std::ranges::for_each(launch->buffers, read);
    auto* step = std::get_if<plan::Extern>(&p.steps[i]);
    if (!step) continue;
    auto read_view = [&](loop::ViewRef v) {
      if (v.valid()) read(step->call.views[v.index].buffer.index);
    };
    for (size_t k = 0; k < step->call.args.size(); ++k) {
      if (!reads(i, k)) continue;
      if (auto* view = std::get_if<loop::ViewRef>(&step->call.args[k])) read_view(*view);
      if (auto* list = std::get_if<std::vector<loop::ViewRef>>(&step->call.args[k]))
        std::ranges::for_each(*list, read_view);
    }
    for (const loop::View& v : step->call.outputs)
      if (v.buffer.valid()) read(v.buffer.index);
  }
  for (const plan::Tuned& t : p.tuned)
    for (const plan::TemplateKernel& k : t.kernels) std::ranges::for_each(k.buffers, read);
  for (const loop::Output& o : p.outputs) {
    if (o.kind == loop::Output::Kind::View) read(o.view.buffer.index);
    if (o.kind == loop::Output::Kind::Input) out.at(o.input) = true;
  }
  for (const plan::Writeback& w : p.writebacks) read(w.from.buffer.index), out.at(w.input) = true;
  return out;
}

}  // namespace braze::launch
