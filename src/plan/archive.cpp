#include "plan/archive.h"

#include "loop/archive.h"

namespace braze::plan {

constexpr bool is_value(Where w) { return w <= Where::Adopted; }
template <class A>
void fields(A& a, Buffer& b) {
  auto& [name, where, dtype, device, index, offset, bytes, sizes, strides] = b;
  a(name, where, dtype, device, index, offset, bytes, sizes, strides);
}
template <class A>
void fields(A& a, Launch& l) {
  auto& [name, kernel, buffers, sizes, blocks, commits] = l;
  a(name, kernel, buffers, sizes, blocks, commits);
}
template <class A>
void fields(A& a, Extern& e) {
  auto& [call] = e;
  a(call);
}
template <class A>
void fields(A& a, Allocate& s) {
  auto& [buffer] = s;
  a(buffer);
}
template <class A>
void fields(A& a, Release& s) {
  auto& [buffer] = s;
  a(buffer);
}
template <class A>
void fields(A& a, Kernel& k) {
  auto& [symbol, blob, pointers, sizes, device, threads, shared, early] = k;
  a(symbol, blob, pointers, sizes, device, threads, shared, early);
}
template <class A>
void fields(A& a, TemplateKernel& k) {
  auto& [label, text, symbol, arguments, warps, stages, sm, buffers, blocks] = k;
  a(label, text, symbol, arguments, warps, stages, sm, buffers, blocks);
}
template <class A>
void fields(A& a, Tuned& t) {
  auto& [steps, call, written, key, work, points, kernels] = t;
  a(steps, call, written, key, work, points, kernels);
}
template <class A>
void fields(A& a, Writeback& w) {
  a(static_cast<loop::Writeback&>(w), w.through);
}
template <class A>
void fields(A& a, Plan& p) {
  auto& [arena, buffers, steps, kernels, blobs, arena_bytes, arena_device, outputs, writebacks, size_symbols, inputs,
         tuned, tuning_seconds, keeps_choices] = p;
  a(buffers, steps, kernels, blobs, arena_bytes, arena_device, outputs, writebacks, size_symbols, inputs, tuned,
    tuning_seconds, keeps_choices);
}

void pack(sym::Packer& out, const Plan& plan) { out(plan); }

Plan unpack(sym::Unpacker& in, std::shared_ptr<sym::ExprArena> arena) {
  Plan p = in.get<Plan>();
  p.arena = std::move(arena);
  verify(p);
  return p;
}

}  // namespace braze::plan
