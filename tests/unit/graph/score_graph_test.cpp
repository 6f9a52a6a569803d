#include "graph/score_graph.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace braze::graph {
namespace {

// Functions of a score (%0), its indices (%1 to %4) and a gradient (%5).
ScoreGraph cut(const std::string& operands, const std::string& body, const std::string& scored) {
  Graph whole = parse("graph {\n  %0: f32[] = input argument\n  %1: i64[] = input argument\n" +
                      std::string("  %2: i64[] = input argument\n  %3: i64[] = input argument\n") +
                      "  %4: i64[] = input argument\n  %5: f32[] = input argument\n" + operands + body + "  return " +
                      scored + "\n}\n");
  std::vector<ValueId> inputs;
  for (uint32_t i = 0; i < kScoreInputs; ++i) inputs.push_back(whole.inputs[i].value);
  ValueId outputs[] = {whole.outputs[0], ValueId(), ValueId()};
  return cut_score_graph(whole, inputs, outputs, [](ValueId) { return std::optional<double>(); });
}

TEST(ScoreGraph, TakesWhatDoesNotDependOnTheScoreAsOperand) {
  ScoreGraph s = cut("  %6: f32[8] = input argument\n",
                     "  %7: f32[8] = aten::neg(%6)\n  %8: f32[] = aten::index.Tensor(%7, tensors[%2])\n"
                     "  %9: f32[] = aten::add.Tensor(%0, %8, 1)\n",
                     "%9");
  ASSERT_EQ(s.operands.size(), 1u);
  EXPECT_EQ(s.operands[0].index, 7u);
  EXPECT_EQ(s.graph.nodes().size(), 2u);
  verify(s.graph);
}

TEST(ScoreGraph, JoinsIndicesOfElements) {
  ScoreGraph s = cut("  %6: f32[2,8] = input argument\n",
                     "  %7: f32[8] = aten::index.Tensor(%6, tensors[%1])\n"
                     "  %8: f32[] = aten::index.Tensor(%7, tensors[%2])\n  %9: f32[] = aten::mul.Tensor(%0, %8)\n",
                     "%9");
  ASSERT_EQ(s.graph.nodes().size(), 2u);
  EXPECT_EQ(std::get<TensorList>(s.graph.node(NodeId(0)).args[1]).size(), 2u);
}

TEST(ScoreGraph, RefusesMoreThanOneScore) {
  EXPECT_THROW(cut("", "  %6: f32[] = aten::cumsum(%0, 0, none)\n", "%6"), Unsupported);
  EXPECT_THROW(
      cut("  %6: f32[2,8] = input argument\n",
          "  %7: f32[8] = aten::index.Tensor(%6, tensors[%1])\n  %8: f32[8] = aten::add.Tensor(%0, %7, 1)\n", "%8"),
      Unsupported);
}

TEST(ScoreGraph, SpreadsOverAllPoints) {
  ScoreGraph s =
      cut("", "  %6: i64[] = aten::sub.Tensor(%4, %3, 1)\n  %7: f32[] = aten::add.Tensor(%0, %6, 1)\n", "%7");
  auto arena = std::make_shared<sym::ExprArena>();
  sym::Expr sizes[] = {arena->constant(1), arena->constant(2), arena->constant(3), arena->constant(4)};
  Graph all = spread_score_graph(s.graph, kScored, arena, sizes, {});
  verify(all);
  EXPECT_EQ(all.type(all.outputs[0]).sizes, std::vector<sym::Expr>(sizes, sizes + 4));
}

}  // namespace
}  // namespace braze::graph
