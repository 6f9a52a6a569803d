#include "autodiff/archive.h"

#include <algorithm>

namespace braze::autodiff {

constexpr bool is_value(Source::Kind k) { return k <= Source::Kind::Tangent; }
template <class A>
void fields(A& a, Source& s) {
  auto& [kind, index] = s;
  a(kind, index);
}
template <class A>
void fields(A& a, Kept& k) {
  auto& [what, bytes, loc] = k;
  a(what, bytes, loc);
}
template <class A>
void fields(A& a, Partition::Copy& c) {
  auto& [input, output] = c;
  a(input, output);
}
// But for the graphs.
template <class A>
void fields(A& a, Partition& p) {
  auto& [forward, backward, sources, depends_on, bound, read_inputs, read_outputs, needed_inputs, copies, saved,
         recomputed, saved_bytes, random] = p;
  a(sources, depends_on, bound, read_inputs, read_outputs, needed_inputs, copies, saved, recomputed, saved_bytes,
    random);
}

namespace {

void verify(const Partition& p, const Joint& joint) {
  auto below = [](const std::vector<uint32_t>& numbers, size_t end) {
    return std::all_of(numbers.begin(), numbers.end(), [&](uint32_t n) { return n < end; });
  };
  const size_t inputs = p.forward.inputs.size(), outputs = p.forward.outputs.size(), tangents = joint.tangents.size();
  bool fits = inputs + tangents == joint.graph.inputs.size() && outputs >= joint.outputs &&
              p.sources.size() == p.backward.inputs.size() && p.depends_on.size() == p.backward.outputs.size() &&
              below(p.read_inputs, inputs) && below(p.read_outputs, outputs) && below(p.needed_inputs, inputs);
  for (const Source& s : p.sources) {
    size_t ends[] = {inputs, joint.graph.inputs.size(), outputs, tangents};
    fits = fits && s.index < ends[static_cast<size_t>(s.kind)];
  }
  for (const auto& numbers : p.depends_on) fits = fits && below(numbers, tangents);
  for (const Partition::Copy& c : p.copies) fits = fits && c.input < inputs && c.output < outputs;
  for (const auto* kept : {&p.saved, &p.recomputed})
    for (const Kept& k : *kept) fits = fits && (!k.loc.valid() || k.loc.index < joint.graph.locations().size());
  if (!fits) damaged("a partition of another graph");
}

}  // namespace

void pack(sym::Packer& out, const Partition& parts) {
  graph::pack(out, parts.forward);
  graph::pack(out, parts.backward);
  out(parts);
}

Partition unpack(sym::Unpacker& in, const Joint& joint) {
  Partition p;
  p.forward = graph::unpack(in, joint.graph);
  p.backward = graph::unpack(in, joint.graph);
  in(p);
  verify(p, joint);
  return p;
}

}  // namespace braze::autodiff
