#include "autodiff/repeat.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace braze::autodiff {
namespace {

// Two checkpoints and the backward that the program runs itself. Of the first sin is saved; what the first gives is
// read by the backward of the second.
constexpr const char* kStep = R"(graph {
  %0: f32[8] = input argument
  %1: f32[8] = aten::exp(%0) checkpoint 1 must_recompute
  %2: f32[8] = aten::sin(%1) checkpoint 1 must_save
  %3: f32[8] = aten::tanh(%2) checkpoint 1 must_recompute
  %4: f32[8] = aten::exp(%3) checkpoint 2 must_recompute
  %5: f32[8] = aten::sin(%4) checkpoint 2 must_recompute
  %6: f32[8] = aten::mul.Tensor(%5, %5)
  %7: f32[8] = aten::cos(%4) checkpoint 2 must_recompute again
  %8: f32[8] = aten::mul.Tensor(%6, %7) checkpoint 2 must_recompute again
  %9: f32[8] = aten::mul.Tensor(%8, %4) checkpoint 2 must_recompute again
  %10: f32[8] = aten::mul.Tensor(%9, %3) checkpoint 1 must_recompute again
  %11: f32[8] = aten::mul.Tensor(%10, %2) checkpoint 1 must_recompute again
  %12: f32[8] = aten::mul.Tensor(%11, %1) checkpoint 1 must_recompute again
  return %6, %12
})";

size_t count(const graph::Graph& g, graph::Op op) {
  return static_cast<size_t>(std::count_if(g.nodes().begin(), g.nodes().end(), [&](auto& n) { return n.op == op; }));
}

TEST(Repeat, TheBackwardOfACheckpointReadsWhatItComputesAgain) {
  graph::Graph before = graph::parse(kStep);
  EXPECT_TRUE(has_checkpoints(before));
  graph::Graph g = repeat_checkpoints(before);
  graph::verify(g);
  EXPECT_FALSE(has_checkpoints(g));
  EXPECT_EQ(count(g, graph::Op::exp), 4u);   // of both
  EXPECT_EQ(count(g, graph::Op::sin), 2u);   // that of the first is saved, that of the second is not needed
  EXPECT_EQ(count(g, graph::Op::tanh), 1u);  // the backward of the second has read it
  // The first's exponential is taken again when its backward begins, after the second's is over.
  std::vector<graph::Op> tail;
  for (size_t i = g.nodes().size() - 4; i < g.nodes().size(); ++i) tail.push_back(g.node(graph::NodeId(i)).op);
  using graph::Op;
  EXPECT_EQ(tail, (std::vector<Op>{Op::mul_Tensor, Op::mul_Tensor, Op::exp, Op::mul_Tensor}));
}

TEST(Repeat, WhatCannotBeRepeatedStays) {
  graph::Graph g = repeat_checkpoints(graph::parse(R"(graph {
  %0: f32[8] = input argument
  %1: f32[8] = aten::bernoulli.p(%0, 0.5, none) checkpoint 1 must_recompute
  %2: f32[8] = aten::mul.Tensor(%0, %1) checkpoint 1 must_recompute
  %3: f32[8] = aten::mul.Tensor(%2, %1) checkpoint 1 must_recompute again
  return %2, %3
})"));
  graph::verify(g);
  EXPECT_EQ(count(g, graph::Op::bernoulli_p), 1u);
  EXPECT_EQ(count(g, graph::Op::mul_Tensor), 3u);
}

}  // namespace
}  // namespace braze::autodiff
