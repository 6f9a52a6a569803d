#include "passes/fuse_activation.h"

#include <gtest/gtest.h>

namespace braze::passes {
namespace {

std::string linear(const std::string& dtype, const std::string& device, const std::string& reader,
                   const std::string& results) {
  auto tensor = [&](const std::string& sizes) { return dtype + "[" + sizes + "]" + device; };
  return "graph {\n  %0: " + tensor("8,16") + " = input argument \"x\"\n  %1: " + tensor("16,4") +
         " = input parameter \"w\"\n  %2: " + tensor("4") + " = input parameter \"b\"\n  %3: " + tensor("8,4") +
         " = aten::addmm(%2, %0, %1, 1, 1)\n" + reader + "  return " + results + "\n}\n";
}

// How many products end with an activation.
size_t fused(const std::string& text) {
  graph::Graph g = fuse_activation(graph::parse(text), {{}, {{0, h200()}}});
  graph::verify(g);
  size_t n = 0, rest = 0;
  for (const graph::Node& node : g.nodes()) {
    n += node.extern_name == "aten::_addmm_activation";
    rest += node.op == graph::Op::relu || node.op == graph::Op::gelu;
  }
  EXPECT_EQ(n == 0, rest > 0);
  return n;
}

const std::string kGpu = " on cuda:0";
std::string relu(const std::string& dtype, const std::string& device = kGpu) {
  return "  %4: " + dtype + "[8,4]" + device + " = aten::relu(%3)\n";
}
std::string gelu(const std::string& dtype, const std::string& how) {
  return "  %4: " + dtype + "[8,4]" + kGpu + " = aten::gelu(%3, \"" + how + "\")\n";
}

TEST(FuseActivation, OfProductsOnAGpu) {
  EXPECT_EQ(fused(linear("f32", kGpu, relu("f32"), "%4")), 1u);
  EXPECT_EQ(fused(linear("bf16", kGpu, relu("bf16"), "%4")), 1u);
  EXPECT_EQ(fused(linear("bf16", kGpu, gelu("bf16", "tanh"), "%4")), 1u);
  EXPECT_EQ(fused(linear("f32", "", relu("f32", ""), "%4")), 0u);
  EXPECT_EQ(fused(linear("f64", kGpu, relu("f64"), "%4")), 0u);
}

TEST(FuseActivation, NotWhereTheLibraryHasNone) {
  EXPECT_EQ(fused(linear("bf16", kGpu, gelu("bf16", "none"), "%4")), 0u);
  EXPECT_EQ(fused(linear("f32", kGpu, gelu("f32", "tanh"), "%4")), 0u);
}

TEST(FuseActivation, NotWhereTheProductIsReadBesides) {
  EXPECT_EQ(fused(linear("f32", kGpu, relu("f32"), "%4, %3")), 0u);
  EXPECT_EQ(fused(linear("f32", kGpu, relu("f32") + "  %5: f32[8,4] on cuda:0 = aten::sin(%3)\n", "%4, %5")), 0u);
}

TEST(FuseActivation, ThroughAnotherShape) {
  EXPECT_EQ(fused(linear(
                "f32", kGpu,
                "  %4: f32[2,4,4] on cuda:0 = aten::view(%3, [2, 4, 4])\n  %5: f32[2,4,4] on cuda:0 = aten::relu(%4)\n",
                "%5")),
            1u);
}

}  // namespace
}  // namespace braze::passes
