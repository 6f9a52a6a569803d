// What the partition weighs: bytes of values, and which nodes are cheap to do twice.
#pragma once
#include <cstdint>

#include "graph/graph.h"

namespace braze::autodiff {

// Every symbol counts as kUnknownSize.
constexpr int64_t kUnknownSize = 64;
int64_t elements_of(const graph::Graph& g, graph::ValueId v);
int64_t bytes_of(const graph::Graph& g, graph::ValueId v);

enum class Repeat : uint8_t {
  Free,   // views and constants
  Fused,  // becomes part of the kernels of its readers
  Dear,   // a kernel or call of its own
  Never,  // random, or with effects: another run may give other results
};
Repeat repeat(const graph::Graph& g, const graph::Node& node);

// Arithmetic per byte of result of a node that is Dear, roughly.
int64_t work_per_byte(const graph::Graph& g, const graph::Node& node);

}  // namespace braze::autodiff
