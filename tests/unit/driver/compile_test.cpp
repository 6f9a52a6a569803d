#include <gtest/gtest.h>

#include "driver/driver.h"
#include "driver/fallback.h"
#include "passes/optimize.h"

namespace braze::driver {
namespace {

const char* kTwoLayers = R"(graph {
  %0: f32[8,32] = input argument "x"
  %1: f32[32,32] = input parameter "w1"
  %2: f32[32,32] = input parameter "w2"
  %3: f32[8,32] = aten::mm(%0, %1)
  %4: f32[8,32] = aten::relu(%3)
  %5: f32[8,32] = aten::mm(%4, %2)
  %6: f32[8,32] = aten::relu(%5)
  %7: f32[8,32] = aten::mm(%6, %1)
  return %7
}
)";

TEST(Compile, MakesAPlanWithEqualLayersSharingAKernel) {
  Dumps dumps;
  Artefact made = compile(graph::parse(kTwoLayers), Options{}, &dumps);
  plan::verify(made.plan);
  EXPECT_EQ(made.externs, 3u);
  EXPECT_EQ(made.nests, 2u);
  EXPECT_EQ(made.kernels, 1u);
  EXPECT_EQ(made.plan.inputs, 3u);
  EXPECT_NE(dumps.passes.find("after decompose"), std::string::npos);
  for (const std::string* text : {&dumps.graph, &dumps.lowered, &dumps.scheduled, &dumps.kernels})
    EXPECT_FALSE(text->empty());
  std::vector<std::string> stages, expected;
  for (auto& s : made.timings.stages) stages.push_back(s.first);
  for (const passes::Pass& pass : passes::pipeline())
    if (pass.wanted(Options{})) expected.push_back(std::string("optimize: ") + pass.name);
  for (const char* stage : {"optimize", "lower", "schedule", "memory", "codegen", "plan"}) expected.push_back(stage);
  EXPECT_EQ(stages, expected);
}

TEST(Compile, ToCallsNeedsNoKernels) {
  Artefact made = compile_to_calls(graph::parse(kTwoLayers), Options{}, false);
  plan::verify(made.plan);
  EXPECT_EQ(made.externs, 5u);
  EXPECT_EQ(made.kernels, 0u);
}

}  // namespace
}  // namespace braze::driver
