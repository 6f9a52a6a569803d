// Plans of nests that share a launch.
#include "driver/build_plan.h"

#include <gtest/gtest.h>

#include "loop/loop.h"

namespace braze::driver {
namespace {

// a and b may run at the same time; each reads an input that the caller may let go of.
constexpr const char* kTwo = R"(program
buffer %0 "x" f32 cuda:0 input 0 sizes [64] strides [1]
buffer %1 "y" f32 cuda:0 input 1 sizes [64] strides [1]
buffer %2 "a" f32 cuda:0 output sizes [64] strides [1]
buffer %3 "b" f32 cuda:0 output sizes [64] strides [1]
nest "a" outer [i0: 64] vector outer tile 0 grain 1 locs [] {
  stage [] {
    v0 = load f32 %0[i0]
    store %2[i0] = v0
  }
}
nest "b" outer [j0: 64] vector outer tile 0 grain 1 locs [] {
  stage [] {
    v0 = load f32 %1[j0]
    store %3[j0] = v0
  }
}
output view %2 f32 sizes [64] strides [1] offset 0
output view %3 f32 sizes [64] strides [1] offset 0
)";

TEST(BuildPlan, NestsOfOneLaunchAreOneStep) {
  loop::Program p = loop::parse(kTwo);
  loop::verify(p);
  codegen::Compiled made;
  auto id = [](size_t i) { return loop::BufferId(i); };
  std::vector<loop::BufferId> buffers{id(0), id(2), id(1), id(3)};
  made.kernels.push_back({"kernel", buffers, {}, 0, 64, 0, false});
  made.launches.push_back({2, 0, buffers, {}, p.arena->constant(2)});
  made.blobs.push_back("");
  plan::Plan plan = build_plan(p, schedule::plan_memory(p), std::move(made), {true, true});
  plan::verify(plan);

  // Memory is there before the launch, and inputs are let go of after it.
  std::string order;
  for (const plan::Step& s : plan.steps) order += "LEAR"[s.index()];
  EXPECT_EQ(order, "AALRR");
  const auto& launch = std::get<plan::Launch>(plan.steps[2]);
  EXPECT_EQ(launch.name, "a+b");
  EXPECT_EQ(launch.buffers.size(), 4u);
  EXPECT_TRUE(plan.arena->is_const(launch.blocks, 2));
}

}  // namespace
}  // namespace braze::driver
