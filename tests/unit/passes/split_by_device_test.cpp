#include "passes/split_by_device.h"

#include <gtest/gtest.h>

namespace braze::passes {
namespace {

std::vector<Piece> split(std::string_view text) {
  graph::Graph g = graph::parse(text);
  std::vector<Piece> pieces = split_by_device(g);
  for (const Piece& p : pieces) {
    graph::verify(p.graph);
    EXPECT_EQ(p.inputs.size(), p.graph.inputs.size());
    EXPECT_EQ(p.outputs.size(), p.graph.outputs.size());
  }
  return pieces;
}

TEST(SplitByDevice, AroundWhatTouchesTheCpu) {
  auto pieces = split(R"(graph {
%0: f32[4,4] on cuda:0 = input argument
%1: f32[4,4] = input argument
%2: f32[4,4] on cuda:0 = aten::sin(%0)
%3: f32[4,4] = aten::exp(%1)
%4: f32[4,4] on cuda:0 = aten::_to_copy(%3, dtype.f32, none, device.cuda:0, none, false, none)
%5: f32[4,4] on cuda:0 = aten::add.Tensor(%2, %4, 1)
return %5, %2
})");
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_TRUE(pieces[0].on_gpu && !pieces[1].on_gpu && pieces[2].on_gpu);
  EXPECT_EQ(pieces[0].graph.nodes().size(), 1u);
  EXPECT_EQ(pieces[1].graph.nodes().size(), 2u);
  EXPECT_EQ(pieces[1].why.size(), 2u);
  EXPECT_EQ(pieces[2].inputs, (std::vector<graph::ValueId>{graph::ValueId(2), graph::ValueId(4)}));
  EXPECT_EQ(pieces[0].outputs, (std::vector<graph::ValueId>{graph::ValueId(2)}));
}

TEST(SplitByDevice, ViewsAreRepeatedWhereTheyAreNeeded) {
  auto pieces = split(R"(graph {
%0: f32[4,4] on cuda:0 = input argument
%1: f32[4,4] = input argument
%2: f32[16] on cuda:0 = aten::view(%0, [16])
%3: f32[16] on cuda:0 = aten::sin(%2)
%4: f32[4,4] on cuda:0 = aten::_to_copy(%1, dtype.f32, none, device.cuda:0, none, false, none)
%5: f32[16] on cuda:0 = aten::view(%4, [16])
%6: f32[16] on cuda:0 = aten::mul.Tensor(%5, %2)
return %6, %3
})");
  ASSERT_EQ(pieces.size(), 3u);
  // The last piece takes the copy and the argument, not views of them.
  EXPECT_EQ(pieces[2].inputs, (std::vector<graph::ValueId>{graph::ValueId(4), graph::ValueId(0)}));
  EXPECT_EQ(pieces[2].graph.nodes().size(), 3u);
}

TEST(SplitByDevice, LeavesWholeWhatRunsOnOneSideOrWrites) {
  EXPECT_TRUE(
      split("graph {\n%0: f32[4] on cuda:0 = input argument\n%1: f32[4] on cuda:0 = aten::sin(%0)\nreturn %1\n}")
          .empty());
  EXPECT_TRUE(split("graph {\n%0: f32[4] = input argument\n%1: f32[4] = aten::sin(%0)\nreturn %1\n}").empty());
}

}  // namespace
}  // namespace braze::passes
