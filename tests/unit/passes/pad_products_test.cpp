#include "passes/pad_products.h"

#include <gtest/gtest.h>

#include "meaning.h"

namespace braze::passes {
namespace {

size_t pads(const graph::Graph& g) {
  size_t n = 0;
  for (const graph::Node& node : g.nodes()) n += node.op == graph::Op::constant_pad_nd;
  return n;
}

// What is padded of a graph, whatever that costs; it computes the same.
size_t padded(const std::string& text) {
  graph::Graph before = graph::parse(text), after = pad_all_products(before, machine());
  graph::verify(after);
  EXPECT_EQ(difference(before, after, Within::Nothing), "") << graph::print(after);
  return pads(after);
}

std::string product(const std::string& a, const std::string& b, const std::string& call, const std::string& result,
                    const std::string& dtype = "bf16", const std::string& device = " on cuda:0") {
  auto tensor = [&](const std::string& of) { return dtype + of + device; };
  return "graph {\n  %0: " + tensor(a) + " = input argument \"a\"\n  %1: " + tensor(b) +
         " = input argument \"b\"\n  %2: " + tensor("[5]") + " = input argument \"row\"\n  %3: " + tensor("[4,5]") +
         " = input argument \"matrix\"\n  %4: " + tensor(result) + " = " + call + "\n  return %4\n}\n";
}

// A language model's last layer, forward and backward: the weight and the gradient are padded once each for all three
// products, the bias beside them.
TEST(PadProducts, OfAVocabulary) {
  graph::Graph g = pad_products(graph::parse(R"(graph {
  %0: bf16[2048,768] on cuda:0 = input argument "x"
  %1: bf16[50257,768] on cuda:0 = input parameter "w"
  %2: bf16[50257] on cuda:0 = input parameter "b"
  %3: bf16[2048,50257] on cuda:0 = input argument "gradient"
  %4: bf16[768,50257]{1,768} on cuda:0 = aten::t(%1)
  %5: bf16[2048,50257] on cuda:0 = aten::addmm(%2, %0, %4, 1, 1)
  %6: bf16[2048,768] on cuda:0 = aten::mm(%3, %1)
  %7: bf16[50257,2048]{1,50257} on cuda:0 = aten::t(%3)
  %8: bf16[50257,768] on cuda:0 = aten::mm(%7, %0)
  return %5, %6, %8
})"),
                                machine());
  graph::verify(g);
  EXPECT_EQ(pads(g), 3u);
  for (const graph::Node& n : g.nodes()) {
    if (n.op != graph::Op::mm && n.op != graph::Op::addmm) continue;
    for (sym::Expr size : g.type(n.outputs[0]).sizes) EXPECT_EQ(g.arena().as_const(size).value() % 8, 0);
  }
}

TEST(PadProducts, NotWhereCopiesCostMore) {
  const std::string few = product("[64,1023]", "[1023,64]", "aten::mm(%0, %1)", "[64,64]");
  EXPECT_EQ(pads(pad_products(graph::parse(few), machine())), 0u);
  EXPECT_EQ(pads(pad_all_products(graph::parse(few), machine())), 2u);
}

TEST(PadProducts, MeanTheSame) {
  EXPECT_EQ(padded(product("[4,3]", "[3,5]", "aten::mm(%0, %1)", "[4,5]")), 2u);
  EXPECT_EQ(padded(product("[4,8]", "[8,5]", "aten::mm(%0, %1)", "[4,5]")), 1u);
  EXPECT_EQ(padded(product("[4,3]", "[3,8]", "aten::mm(%0, %1)", "[4,8]")), 2u);
  EXPECT_EQ(padded(product("[4,8]", "[8,16]", "aten::mm(%0, %1)", "[4,16]")), 0u);
  EXPECT_EQ(padded(product("[4,3]{1,4}", "[3,5]{1,3}", "aten::mm(%0, %1)", "[4,5]")), 2u);
  EXPECT_EQ(padded(product("[4,8]{1,4}", "[8,16]", "aten::mm(%0, %1)", "[4,16]")), 1u);
  EXPECT_EQ(padded(product("[4,3]", "[3,5]", "aten::addmm(%2, %0, %1, 1, 1)", "[4,5]")), 3u);
  EXPECT_EQ(padded(product("[4,3]{1,4}", "[3,5]", "aten::addmm(%3, %0, %1, 2, 3)", "[4,5]")), 3u);
  EXPECT_EQ(padded(product("[2,4,3]", "[2,3,5]", "aten::bmm(%0, %1)", "[2,4,5]")), 2u);
  EXPECT_EQ(padded(product("[2,4,3]{12,1,4}", "[2,3,5]", "aten::bmm(%0, %1)", "[2,4,5]")), 2u);
  EXPECT_EQ(padded(product("[2,4,3]", "[2,3,5]{15,1,3}", "aten::baddbmm(%2, %0, %1, 1, 1)", "[2,4,5]")), 3u);
  EXPECT_EQ(padded(product("[4,3]", "[3,5]", "aten::_addmm_activation(%2, %0, %1, 1, 1, true)", "[4,5]")), 3u);
}

TEST(PadProducts, OnlyOfHalfTypesOnAGpu) {
  EXPECT_EQ(padded(product("[4,3]", "[3,5]", "aten::mm(%0, %1)", "[4,5]", "f16")), 2u);
  EXPECT_EQ(padded(product("[4,3]", "[3,5]", "aten::mm(%0, %1)", "[4,5]", "f32")), 0u);
  EXPECT_EQ(padded(product("[4,3]", "[3,5]", "aten::mm(%0, %1)", "[4,5]", "bf16", "")), 0u);
}

}  // namespace
}  // namespace braze::passes
