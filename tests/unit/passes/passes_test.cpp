#include <gtest/gtest.h>

#include "graph/graph.h"
#include "passes/dce.h"
#include "passes/decompose.h"
#include "passes/hoist_assertions.h"
#include "passes/optimize.h"

namespace braze::passes {
namespace {

using graph::Graph;
using graph::parse;

std::string after(Graph (*pass)(const Graph&), std::string_view text) {
  Graph g = pass(parse(text));
  graph::verify(g);
  return graph::print(g);
}
size_t count(const std::string& text, std::string_view what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

constexpr const char* kUnbacked = R"(graph {
  symbol s0 size 1 1000
  symbol u0 unbacked 0 1000
  symbol u1 unbacked 0 1000
%0: f32[s0] = input argument
  size s0 %0 0
%1: i64[u0,1]{1,u0} = aten::nonzero(%0)
%2: i64[u1,1]{1,u1} = aten::nonzero(%0)
%3: f32[s0] = aten::relu(%0)
%4: f32[u0] = aten::full([u0], 1.0, dtype.f32, none, none, none)
= aten::_assert_scalar(u0, "<=", s0, "RuntimeError", "too many", [u0])
return %3, %4
})";

TEST(Dce, KeepsWhatDefinesASize) {
  std::string t = after(dce, kUnbacked);
  EXPECT_EQ(count(t, "aten::nonzero"), 1u) << t;
  EXPECT_NE(t.find("i64[u0,1]"), std::string::npos) << t;
}

TEST(HoistAssertions, GoRightAfterTheDefinition) {
  std::string t = after(hoist_assertions, kUnbacked);
  size_t defined = t.find("[u0,1]"), checked = t.find("_assert_scalar"), other = t.find("[u1,1]");
  EXPECT_LT(defined, checked) << t;
  EXPECT_LT(checked, other) << t;
}

TEST(Dce, KeepsEffectsAndUsedNodes) {
  std::string t = after(dce, R"(graph {
%0: f32[4] = input argument
%1: f32[4] = aten::relu(%0)
%2: f32[4] = aten::neg(%0)
%3: f32[4] = aten::rand([4], none, none, none, none)
%4: f32[4] = custom::write(%0)
return %1
})");
  EXPECT_EQ(count(t, "aten::neg"), 0u);
  EXPECT_EQ(count(t, "aten::relu"), 1u);
  EXPECT_EQ(count(t, "aten::rand"), 1u);
  EXPECT_EQ(count(t, "custom::write"), 1u);
}

TEST(Decompose, KeepsThePromisedLayout) {
  Graph g = decompose(parse(R"(graph {
%0: f32[2,3,4,4]{48,1,12,3} = input argument
%1: f32[3] = input parameter
%2: f32[2,3,4,4]{48,1,12,3}, %3: f32[0], %4: f32[0] = aten::_native_batch_norm_legit_no_training(%0, %1, %1, %1, %1, 0.1, 1e-05)
return %2
})"));
  graph::verify(g);
  EXPECT_EQ(g.type(g.outputs[0]).strides[1], g.arena().constant(1));
  EXPECT_EQ(count(graph::print(g), "batch_norm"), 0u);
}

TEST(Decompose, LeavesWhatHasNoExactRule) {
  std::string t = after(decompose, R"(graph {
%0: f32[2,3] = input argument
%1: f32[3] = input buffer
%2: f32[2,3], %3: f32[3], %4: f32[3] = aten::native_batch_norm(%0, %1, %1, %1, %1, true, 0.1, 1e-05)
return %2
})");
  EXPECT_EQ(count(t, "aten::native_batch_norm"), 1u);
}

TEST(Optimize, SymbolicLayerNorm) {
  Graph g = optimize(parse(R"(graph {
symbol s0 size 2 1024
%0: f32[s0,8] = input argument
%1: f32[8] = input parameter
%2: f32[s0,8], %3: f32[s0,1], %4: f32[s0,1] = aten::native_layer_norm(%0, [8], %1, %1, 1e-05)
return %2
})"),
                     Options{}, Targets{});
  graph::verify(g);
  EXPECT_EQ(count(graph::print(g), "aten::native_layer_norm"), 0u);
  EXPECT_EQ(count(graph::print(g), "aten::var_mean.correction"), 1u);
}

}  // namespace
}  // namespace braze::passes
