// Shape functions on cases whose answers come from eager PyTorch, and on symbolic sizes.
#include "graph/shape.h"

#include <gtest/gtest.h>

namespace braze::graph {
namespace {

// Every node's declared types are what infer() says; returns the number of nodes checked.
size_t agrees(std::string_view text) {
  Graph g = parse(text);
  auto lookup = [&](ValueId v) { return Operand{&g.type(v), false}; };
  ShapeContext context{lookup, g.arena()};
  size_t n = 0;
  for (const Node& node : g.nodes()) {
    auto types = infer(node.op, node.args, context);
    EXPECT_TRUE(types.has_value()) << op_name(node.op);
    if (!types) continue;
    EXPECT_EQ(types->size(), node.outputs.size());
    for (size_t i = 0; i < types->size(); ++i) {
      const TensorType &got = (*types)[i], &want = g.type(node.outputs[i]);
      EXPECT_EQ(name(got.dtype), name(want.dtype)) << op_name(node.op);
      EXPECT_EQ(got.sizes, want.sizes) << op_name(node.op);
      EXPECT_EQ(got.strides, want.strides) << op_name(node.op);
      EXPECT_EQ(got.offset, want.offset) << op_name(node.op);
    }
    ++n;
  }
  return n;
}

bool declines(std::string_view text) {
  Graph g = parse(text);
  auto lookup = [&](ValueId v) { return Operand{&g.type(v), false}; };
  const Node& last = g.node(NodeId(g.nodes().size() - 1));
  return !infer(last.op, last.args, {lookup, g.arena()});
}

TEST(Shape, PromotionOfTensorsAndNumbers) {
  agrees(R"(graph {
%0: bf16[4,8] = input argument
%1: f64[] = input argument
%2: i64[4,8] = input argument
%3: bf16[4,8] = aten::add.Tensor(%0, %1, 1)
%4: bf16[4,8] = aten::mul.Tensor(%0, 2.5)
%5: f32[4,8] = aten::mul.Tensor(%2, 2.5)
%6: i64[4,8] = aten::add.Tensor(%2, true, 1)
%7: f32[4,8] = aten::div.Tensor(%2, 2)
%8: bool[4,8] = aten::eq.Scalar(%2, 2.5)
%9: bf16[4,8] = aten::where.self(%8, %0, 0.0)
return
})");
}

TEST(Shape, LayoutOfIterators) {
  agrees(R"(graph {
%0: f32[4,8]{1,4} = input argument
%1: f32[4,8] = input argument
%2: f32[2,3,4,5]{60,1,15,3} = input argument
%3: f32[3,1,1] = input argument
%4: f32[4,8]{1,4} = aten::relu(%0)
%5: f32[4,8]{1,4} = aten::add.Tensor(%0, %1, 1)
%6: f32[4,8] = aten::add.Tensor(%1, %0, 1)
%7: f32[2,3,4,5]{60,1,15,3} = aten::mul.Tensor(%2, %3)
return
})");
}

TEST(Shape, Views) {
  agrees(R"(graph {
%0: f32[4,8] = input argument
%1: f32[8,4]{1,8} = aten::t(%0)
%2: f32[4,2,4] = aten::view(%0, [4, 2, -1])
%3: f32[2,4,4]{4,8,1} = aten::permute(%2, [1, 0, -1])
%4: f32[4,3]{8,2} offset 1 = aten::slice.Tensor(%0, 1, 1, 7, 2)
%5: f32[4]{8} offset 7 = aten::select.int(%0, 1, -1)
%6: f32[3,4,8]{0,8,1} = aten::expand(%0, [3, -1, 8], false)
%7: f32[4,5]{8,1}, %8: f32[4,3]{8,1} offset 5 = aten::split_with_sizes(%0, [5, 3], 1) lists 2
return
})");
  EXPECT_TRUE(declines("graph {\n%0: f32[4,8]{1,4} = input argument\n%1: f32[32] = aten::view(%0, [32])\nreturn\n}"));
}

TEST(Shape, SymbolicSizes) {
  agrees(R"(graph {
symbol s0 size 2 1024
%0: f32[s0,8] = input argument
%1: f32[8,16] = input parameter
%2: f32[s0,16] = aten::mm(%0, %1)
%3: f32[s0,4,4] = aten::view(%2, [s0, 4, 4])
%4: f32[4,s0,4]{4,16,1} = aten::transpose.int(%3, 0, 1)
%5: f32[(4*s0),4] = aten::view(%3, [-1, 4])
%6: f32[s0,8] = aten::add.Tensor(%0, 1.0, 1)
%7: f32[s0,1] = aten::mean.dim(%6, [-1], true, none)
%8: f32[s0,8] = aten::sub.Tensor(%6, %7, 1)
return
})");
}

TEST(Shape, DeclinesWhatEagerRefuses) {
  EXPECT_TRUE(
      declines("graph {\n%0: f32[4] = input argument\n%1: f32[3] = input argument\n%2: f32[4] = aten::add.Tensor(%0, "
               "%1, 1)\nreturn\n}"));
  EXPECT_TRUE(declines("graph {\n%0: bool[4] = input argument\n%1: bool[4] = aten::sub.Tensor(%0, %0, 1)\nreturn\n}"));
  EXPECT_TRUE(declines("graph {\n%0: f32[0,4] = input argument\n%1: f32[4] = aten::amax(%0, [0], false)\nreturn\n}"));
}

}  // namespace
}  // namespace braze::graph
