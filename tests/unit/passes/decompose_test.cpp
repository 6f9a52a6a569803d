// Decompositions compute what the operators' definitions say: interpreter against interpreter.
#include "passes/decompose.h"

#include <gtest/gtest.h>

#include <cmath>

#include "graph/interpret.h"

namespace braze::passes {
namespace {

using graph::HostTensor;

HostTensor sample(std::vector<int64_t> sizes, double seed) {
  HostTensor t{DType::F32, std::move(sizes), {}};
  int64_t n = 1;
  for (int64_t s : t.sizes) n *= s;
  for (int64_t i = 0; i < n; ++i)
    t.data.push_back(static_cast<float>(3 * std::sin(seed + 1.7 * static_cast<double>(i * i % 97))));
  return t;
}

void same_values(std::string_view text, const std::vector<HostTensor>& inputs) {
  graph::Graph g = graph::parse(text), d = decompose(g);
  EXPECT_NE(graph::print(g), graph::print(d));
  auto want = graph::interpret(g, inputs), got = graph::interpret(d, inputs);
  ASSERT_EQ(want.size(), got.size());
  for (size_t k = 0; k < want.size(); ++k) {
    ASSERT_EQ(want[k].sizes, got[k].sizes);
    for (size_t i = 0; i < want[k].data.size(); ++i)
      EXPECT_NEAR(want[k].data[i], got[k].data[i], 1e-5) << k << " " << i;
  }
}

TEST(Decompose, Softmax) {
  for (std::string dim : {"0", "1", "-1"})
    same_values("graph {\n%0: f32[3,4,5] = input argument\n%1: f32[3,4,5] = aten::_softmax(%0, " + dim +
                    ", false)\n%2: f32[3,4,5] = aten::_log_softmax(%0, " + dim + ", false)\nreturn %1, %2\n}",
                {sample({3, 4, 5}, 0.3)});
}

TEST(Decompose, LayerNorm) {
  same_values(R"(graph {
%0: f32[3,4,5] = input argument
%1: f32[5] = input parameter
%2: f32[5] = input parameter
%3: f32[3,4,5], %4: f32[3,4,1], %5: f32[3,4,1] = aten::native_layer_norm(%0, [5], %1, %2, 1e-05)
return %3, %4, %5
})",
              {sample({3, 4, 5}, 0.1), sample({5}, 1.1), sample({5}, 2.1)});
}

}  // namespace
}  // namespace braze::passes
