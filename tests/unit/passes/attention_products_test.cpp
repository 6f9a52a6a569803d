#include "passes/attention_products.h"

#include <gtest/gtest.h>

#include "graph/graph.h"

namespace braze::passes {
namespace {

size_t count(const graph::Graph& g, graph::Op op) {
  size_t n = 0;
  for (const graph::Node& node : g.nodes()) n += node.op == op;
  return n;
}

Targets with(bool slow) {
  Target cpu;
  cpu.slow_f32_products = slow;
  return Targets{cpu, {}};
}

// One attention of these sizes; `rest`: its mask and scale, and what is returned.
graph::Graph attention(const std::string& queries, const std::string& keys, const std::string& results = "return %3") {
  return graph::parse("graph {\n  %0: f32[1,2," + queries + ",16] = input argument \"q\"\n  %1: f32[1,2," + keys +
                      ",16] = input argument \"k\"\n  %2: f32[1,2," + keys + ",16] = input argument \"v\"\n" +
                      "  %3: f32[1,2," + queries + ",16], %4: f32[1,2," + queries +
                      "] = aten::_scaled_dot_product_flash_attention_for_cpu(%0, %1, %2, 0.0, false, none, none)\n  " +
                      results + "\n}\n");
}

size_t products(const graph::Graph& g, bool slow = true) {
  return count(attention_products(g, with(slow)), graph::Op::bmm);
}

TEST(AttentionProducts, WhereTheLibraryIsSlow) {
  EXPECT_EQ(products(attention("64", "64")), 2u);
  EXPECT_EQ(products(attention("64", "64"), false), 0u);
}

TEST(AttentionProducts, OfScoresThatFitTheCaches) {
  EXPECT_EQ(products(attention("2048", "2048")), 2u);
  EXPECT_EQ(products(attention("2049", "2048")), 0u);
}

TEST(AttentionProducts, NotOfFewQueriesOrKeys) {
  EXPECT_EQ(products(attention("1", "64")), 0u);
  EXPECT_EQ(products(attention("64", "8")), 0u);
}

TEST(AttentionProducts, NotWhereABackwardReadsStatistics) {
  EXPECT_EQ(products(attention("64", "64", "return %3, %4")), 0u);
}

}  // namespace
}  // namespace braze::passes
