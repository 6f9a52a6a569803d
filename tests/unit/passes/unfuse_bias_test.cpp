#include "passes/unfuse_bias.h"

#include <gtest/gtest.h>

namespace braze::passes {
namespace {

std::string linear(const std::string& reader, const std::string& results, const std::string& scale = "1") {
  return "graph {\n  %0: f32[8,16] = input argument \"x\"\n  %1: f32[16,4] = input parameter \"w\"\n  %2: f32[4] = "
         "input parameter \"b\"\n"
         "  %3: f32[8,4] = aten::addmm(%2, %0, %1, 1, " +
         scale + ")\n" + reader + "  return " + results + "\n}\n";
}

size_t count(const graph::Graph& g, graph::Op op) {
  size_t n = 0;
  for (const graph::Node& node : g.nodes()) n += node.op == op;
  return n;
}

graph::Graph split(const std::string& text) {
  graph::Graph g = unfuse_bias(graph::parse(text), {{}, {{0, h200()}}});
  graph::verify(g);
  return g;
}

TEST(UnfuseBias, WhereKernelsReadTheResult) {
  graph::Graph g = split(linear("  %4: f32[8,4] = aten::relu(%3)\n", "%4"));
  EXPECT_EQ(count(g, graph::Op::mm), 1u);
  EXPECT_EQ(count(g, graph::Op::addmm), 0u);
  EXPECT_EQ(count(g, graph::Op::add_Tensor), 1u);
}

TEST(UnfuseBias, ThroughViews) {
  graph::Graph g =
      split(linear("  %4: f32[2,4,4] = aten::view(%3, [2, 4, 4])\n  %5: f32[2,4,4] = aten::relu(%4)\n", "%5"));
  EXPECT_EQ(count(g, graph::Op::mm), 1u);
}

TEST(UnfuseBias, NotWhereTheResultLeaves) {
  EXPECT_EQ(count(split(linear("", "%3")), graph::Op::addmm), 1u);
  EXPECT_EQ(count(split(linear("  %4: f32[8,4] = aten::relu(%3)\n", "%4, %3")), graph::Op::addmm), 1u);
  EXPECT_EQ(count(split(linear("  %4: f32[4,8]{1,4} = aten::t(%3)\n", "%4")), graph::Op::addmm), 1u);
}

TEST(UnfuseBias, NotWhereACallReadsTheResult) {
  EXPECT_EQ(
      count(
          split(linear(
              "  %4: f32[4,8]{1,4} = aten::t(%3)\n  %5: f32[8,8] = aten::mm(%3, %4)\n  %6: f32[8,8] = aten::relu(%5)\n",
              "%6")),
          graph::Op::addmm),
      1u);
}

TEST(UnfuseBias, NotScaledOnes) {
  EXPECT_EQ(count(split(linear("  %4: f32[8,4] = aten::relu(%3)\n", "%4", "2")), graph::Op::addmm), 1u);
}

}  // namespace
}  // namespace braze::passes
