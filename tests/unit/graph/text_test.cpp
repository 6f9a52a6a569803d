// The text form: everything that a graph holds survives print and parse; errors name the place.
#include <gtest/gtest.h>

#include "base/check.h"
#include "graph/graph.h"

namespace braze::graph {
namespace {

constexpr std::string_view kAll = R"(graph {
  symbol s0 size 2 1024
  symbol s1 size 2 64
  loc 0 "a \"b\".py" 12 "forward" "y = x + 1"
  %0: f32[4,s0] = input argument "x"
  %1: bf16[s1,8]{1,s1} = input parameter "self.w"
  %2: i64[] on cuda:1 = input constant
  size s0 %0 1
  stride s1 %1 1
  %3: f32[4,s0]{1,4} = aten::add.Tensor(%0, 1.0, 1)  # loc 0
  %4: f32[2,(2*s0)] offset 8 = custom::op(%3, none, tensors[%0, none], true, -3, s0, (2*s0), 1e-05, -inf, nan, "t\n", dtype.bool, device.cuda:0, format.2, layout.0, [1, s0], doubles[1.5, inf], bools[true, false], opaque.4)
  %5: f32[2,4], %6: f32[2,4] = aten::split.Tensor(%0, 4, 1) lists 2
  %7: f32[1], none = custom::pair(%5)
  = aten::_assert_async(%2)
  return %4, none, %7
  writeback %0 %3
}
)";

TEST(GraphText, RoundTrips) {
  Graph g = parse(kAll);
  EXPECT_EQ(print(g), kAll);
  verify(g);
  EXPECT_EQ(g.inputs.size(), 3u);
  EXPECT_EQ(g.node(NodeId(3)).outputs.size(), 2u);
}

TEST(GraphText, KeepsTheKindOfArguments) {
  Graph g = parse("graph {\n%0: f32[] = input argument\n%1: f32[] = aten::add.Tensor(%0, 1, 1.0)\nreturn %1\n}");
  const auto& args = g.node(NodeId(0)).args;
  EXPECT_TRUE(std::holds_alternative<Expr>(args[1]));
  EXPECT_TRUE(std::holds_alternative<double>(args[2]));
}

TEST(GraphText, ErrorsNameLineAndColumn) {
  try {
    parse("graph {\n  %0: f33[] = input argument\n}");
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("line 2, column"), std::string::npos) << e.what();
  }
  EXPECT_THROW(parse("graph {\n  %0: f32[] = aten::relu(%0)\n}"), InternalError);
  EXPECT_THROW(parse("graph {"), InternalError);
}

TEST(GraphVerify, NamesTheRule) {
  Graph g = parse(
      "graph {\n%0: f32[2] = input argument\n%1: f32[2] = aten::relu(%0)\n%2: f32[2] = aten::neg(%1)\nreturn %2\n}");
  verify(g);
  g.node(NodeId(0)).args[0] = ValueId(2);
  try {
    verify(g);
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("'operands'"), std::string::npos);
  }
}

TEST(Text, RefusesALocationThatIsNotDeclared) {
  EXPECT_THROW(parse("graph {\n  %0: f32[] = input argument\n  %1: f32[] = aten::abs(%0)  # loc 0\n  return %1\n}\n"),
               InternalError);
}

TEST(Op, TableIsFoundByName) {
  EXPECT_EQ(op_from_name("aten::add.Tensor"), Op::add_Tensor);
  EXPECT_EQ(op_name(Op::add_Tensor), "aten::add.Tensor");
  EXPECT_EQ(op_from_name("aten::no_such"), Op::Extern);
  EXPECT_EQ(op_class(Op::native_layer_norm), OpClass::Decompose);
}

TEST(Types, PromotionLattice) {
  EXPECT_EQ(promote(DType::U8, DType::I8), DType::I16);
  EXPECT_EQ(promote(DType::F16, DType::BF16), DType::F32);
  EXPECT_EQ(promote(DType::I64, DType::F16), DType::F16);
  EXPECT_EQ(promote(DType::C64, DType::F64), DType::C128);
  EXPECT_EQ(promote(DType::Bool, DType::U8), DType::U8);
}

}  // namespace
}  // namespace braze::graph
