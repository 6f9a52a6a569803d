// What plans share with loop programs, as bytes and back (symbolic/archive.h).
#pragma once
#include "graph/archive.h"
#include "loop/loop.h"

namespace braze::loop {

constexpr bool is_value(Output::Kind k) { return k <= Output::Kind::Input; }
template <class A>
void fields(A& a, View& v) {
  auto& [buffer, sizes, strides, offset, dtype] = v;
  a(buffer, sizes, strides, offset, dtype);
}
template <class A>
void fields(A& a, ExternCall& c) {
  auto& [op, name, args, views, outputs, list_sizes, preallocated, locs] = c;
  a(op, name, args, views, outputs, list_sizes, preallocated, locs);
}
template <class A>
void fields(A& a, Output& o) {
  auto& [kind, view, input] = o;
  a(kind, view, input);
}
template <class A>
void fields(A& a, Writeback& w) {
  auto& [from, input, in_place] = w;
  a(from, input, in_place);
}

}  // namespace braze::loop
