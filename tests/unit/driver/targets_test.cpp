// Which machines a program is compiled for, and what is said where one is not here.
#include "driver/targets.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "codegen/codegen.h"
#include "driver/driver.h"

namespace braze::driver {
namespace {

constexpr const char* kOnGpus = R"(graph {
  %0: f32[4,4] on cuda:1 = input argument
  %1: f32[4,4] on cuda:1 = aten::sin(%0)
  return %1
})";

TEST(Targets, AreThoseOfTheDevices) {
  Targets t = targets_of(graph::parse(kOnGpus), {});
  ASSERT_EQ(t.gpus.size(), 1u);
  EXPECT_TRUE(t.of({DeviceType::CUDA, 1}).is_gpu());
  EXPECT_FALSE(t.of({DeviceType::CPU, -1}).is_gpu());
  EXPECT_THROW(t.of({DeviceType::CUDA, 0}), InternalError);
}

TEST(Targets, WithoutAGpuAllIsSaidButNothingRuns) {
  graph::Graph g = graph::parse(kOnGpus);
  const Targets t = targets_of(g, {});
  const Target& gpu = t.of({DeviceType::CUDA, 1});
  if (gpu.unavailable.empty()) GTEST_SKIP() << "there are two GPUs";
  EXPECT_EQ(gpu.text(), h200().text());
  EXPECT_NE(sources(scheduled(g, {}), {}).find("nest sin"), std::string::npos);
  try {
    compile(g, {});
    FAIL() << "it was compiled";
  } catch (const Unsupported& e) {
    EXPECT_EQ(e.detail(), gpu.unavailable);
  }
}

// LLVM's backends are large: a program has that of its own machine, and others where it asks for them.
TEST(Targets, ABackendThatIsNotLinkedIsMissed) {
  Target foreign =
      kHostArchitecture == Target::Architecture::AArch64 ? codegen::x86_target(CpuLevel::Avx2) : codegen::neon_target();
  loop::Program p = scheduled(graph::parse(R"(graph {
  %0: f32[4,4] = input argument
  %1: f32[4,4] = aten::sin(%0)
  return %1
})"),
                              {});
  try {
    codegen::cpu_generator(foreign).source(p, {nests_of(p)[0]}, {});
    FAIL() << "it has a backend";
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("this build has no code generator for"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace braze::driver
