// What the parts of a segment consist of, for both ways (symbolic/archive.h).
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "capture/eval/capture.h"
#include "graph/archive.h"
#include "symbolic/archive.h"

namespace braze {
namespace sym {
template <class A>
void fields(A& a, Range& r) {
  auto& [lo, hi] = r;
  a(lo, hi);
}
}  // namespace sym

namespace trace {
constexpr bool is_value(OutputView::Made m) { return m <= OutputView::Made::WithVersionOf; }
template <class A>
void fields(A& a, OutputView& v) {
  auto& [output, base, of_input, made] = v;
  a(output, base, of_input, made);
}
template <class A>
void fields(A& a, LazyBits& b) {
  auto& [conj, neg] = b;
  a(conj, neg);
}
constexpr bool is_value(CallValue::Kind k) { return k <= CallValue::Kind::Slice; }
template <class A>
void fields(A& a, CallValue& v) {
  auto& [kind, number, size, items] = v;
  a(kind, number, size, items);
}
template <class A>
void fields(A& a, Ambient& m) {
  auto& [grad, autocast_cpu, autocast_cuda, dtype_cpu, dtype_cuda, default_dtype] = m;
  a(grad, autocast_cpu, autocast_cuda, dtype_cpu, dtype_cuda, default_dtype);
}
template <class A>
void fields(A& a, TorchLevel::Call& c) {
  auto& [fn, args, kwargs, result, ambient] = c;
  a(fn, args, kwargs, result, ambient);
}
template <class A>
void fields(A& a, TorchLevel::Input& i) {
  auto& [tensor, name, sizes, strides] = i;
  a(tensor, name, sizes, strides);
}
template <class A>
void fields(A& a, Gradients& g) {
  auto& [results, outputs, tangents, tangent_of, inputs, read_inputs, read_outputs, shared] = g;
  a(results, outputs, tangents, tangent_of, inputs, read_inputs, read_outputs, shared);
}
template <class A>
void fields(A& a, SizeSymbol& s) {
  auto& [symbol, range, declared, fixed_by] = s;
  a(symbol, range, declared, fixed_by);
}
template <class A>
void fields(A& a, SymbolicDim& d) {
  auto& [dim, range, duck, before, unbacked] = d;
  a(dim, range, duck, before, unbacked);
}
}  // namespace trace

namespace graph {
template <class A>
void fields(A& a, Location& l) {
  auto& [file, function, text, line] = l;
  a(file, function, text, line);
}
}  // namespace graph

namespace capture {

constexpr bool is_value(SourceKind k) { return k <= SourceKind::TensorAttr; }
constexpr bool is_value(GuardKind k) { return k <= GuardKind::FloatHolds; }
constexpr bool is_value(StepKind k) { return k <= StepKind::CellSet; }
constexpr bool is_value(FloatCondition::Op op) { return op <= FloatCondition::Op::GreaterEqual; }

template <class A>
void fields(A& a, FloatCondition::Step& s) {
  auto& [op, read, value] = s;
  a(op, read, value);
}
template <class A>
void fields(A& a, SizeGuards::Symbol& s) {
  auto& [symbol, range] = s;
  a(symbol, range);
}

// A tensor among the arguments, or in a tuple or dict of them.
struct Brought {
  int64_t slot = 0;
  std::vector<std::pair<int64_t, std::string>> path;  // places in tuples, else keys
  std::string spec;
};
template <class A>
void fields(A& a, Brought& b) {
  auto& [slot, path, spec] = b;
  a(slot, path, spec);
}

}  // namespace capture
}  // namespace braze
