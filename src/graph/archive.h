// Graphs and the parts that they share with loop programs and plans as bytes and back (symbolic/archive.h).
#pragma once
#include "graph/graph.h"
#include "symbolic/archive.h"

namespace braze {

bool is_value(DType d);  // types.cpp
constexpr bool is_value(DeviceType t) { return t <= DeviceType::Other; }
template <class A>
void fields(A& a, Device& d) {
  auto& [type, index] = d;
  a(type, index);
}
template <class A>
void fields(A& a, TensorType& t) {
  auto& [dtype, device, sizes, strides, offset] = t;
  a(dtype, device, sizes, strides, offset);
}

namespace graph {

constexpr bool is_value(Op op) { return op <= Op::Extern; }
constexpr bool is_value(InputKind k) { return k <= InputKind::Constant; }
constexpr bool is_value(Keep k) { return k <= Keep::MustRecompute; }
template <class A>
void fields(A&, NoneArg&) {}
template <class A>
void fields(A& a, MemoryFormatArg& m) {
  a(m.value);
}
template <class A>
void fields(A& a, LayoutArg& l) {
  a(l.value);
}
template <class A>
void fields(A& a, OpaqueArg& o) {
  a(o.index);
}
template <class A>
void fields(A& a, IntList& l) {
  a(l.v);
}
template <class A>
void fields(A& a, DoubleList& l) {
  a(l.v);
}
template <class A>
void fields(A& a, BoolList& l) {
  a(l.v);
}
template <class A>
void fields(A& a, Checkpoint& c) {
  auto& [region, keep, again] = c;
  a(region, keep, again);
}

// All of a graph but the texts of its locations, which nodes name by number.
void pack(sym::Packer& out, const Graph& g);
// `like`: whose arena and locations the graph has. Verified.
Graph unpack(sym::Unpacker& in, const Graph& like);

}  // namespace graph
}  // namespace braze
