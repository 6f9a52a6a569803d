// In how many pieces a reduction with many elements and few results is made (schedule/split_reduce.h).
#pragma once
#include <cstdint>
#include <optional>

#include "base/target.h"
#include "loop/loop.h"

namespace braze::schedule {

struct ReduceCut {
  int64_t points, rest;          // results; elements of one step along the first axis
  std::optional<int64_t> first;  // the length of that axis, where it is known
  // Pieces of the axis: each is a run of it, or `side` of them lie side by side and share a run, each with every
  // side-th element (1: none do).
  int64_t pieces, side;
  bool columns;  // the last outer axis runs through the memory of what is reduced
};

// Of the first axis of the first stage, which is the one that reduces; nullopt: one pass is as good.
std::optional<ReduceCut> choose_cut(sym::ExprArena& arena, const loop::Nest& nest, const Target& target, bool open);

}  // namespace braze::schedule
