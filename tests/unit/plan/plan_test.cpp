#include "plan/plan.h"

#include <gtest/gtest.h>

#include "base/check.h"

namespace braze::plan {
namespace {

// Two launches: from an input to the arena, from there to an output.
Plan copy_plan() {
  Plan p;
  p.arena = std::make_shared<sym::ExprArena>();
  Expr n = p.arena->constant(16), one = p.arena->constant(1), zero = p.arena->constant(0),
       bytes = p.arena->constant(64);
  p.buffers.push_back({"x", Where::Input, DType::F32, {}, 0, zero, bytes, {n}, {one}});
  p.buffers.push_back({"t", Where::Arena, DType::F32, {}, 0, zero, bytes, {n}, {one}});
  p.buffers.push_back({"y", Where::Output, DType::F32, {}, 0, zero, bytes, {n}, {one}});
  p.kernels.push_back({"copy", 0, 2, 1});
  p.blobs.push_back("");
  p.steps.emplace_back(Launch{"copy", 0, {0, 1}, {n}});
  p.steps.emplace_back(Launch{"copy", 0, {1, 2}, {n}});
  p.arena_bytes = bytes;
  p.outputs.push_back({loop::Output::Kind::View, {loop::BufferId(2), {n}, {one}, zero}, 0});
  p.inputs = 1;
  return p;
}

void expect_broken(const Plan& p, const std::string& rule) {
  try {
    verify(p);
    ADD_FAILURE() << "verified: " << rule;
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find(rule), std::string::npos) << e.what();
  }
}

TEST(Plan, Describe) {
  Plan p = copy_plan();
  verify(p);
  EXPECT_EQ(p.describe(), R"(plan: 1 inputs, 1 outputs, 1 kernels, arena 64 bytes
  buffer x: f32[16][1] input 0
  buffer t: f32[16][1] arena at 0, 64 bytes
  buffer y: f32[16][1] output, 64 bytes
  launch copy(x, t) sizes [16]
  launch copy(t, y) sizes [16]
  return y:f32[16][1]
)");
}

TEST(Plan, VerifyNamesTheBrokenRule) {
  Plan p = copy_plan();
  std::get<Launch>(p.steps[0]).buffers.pop_back();
  expect_broken(p, "as many arguments");
  p = copy_plan();
  p.arena_bytes = p.arena->constant(32);
  expect_broken(p, "inside the arena");
  p = copy_plan();
  p.outputs[0].view.buffer = loop::BufferId(1);
  expect_broken(p, "does not live in the arena");
  p = copy_plan();
  p.buffers[1].where = Where::Adopted;
  expect_broken(p, "between its definition and its release");
  p = copy_plan();
  p.steps.emplace_back(Release{2});
  expect_broken(p, "between its definition and its release");
}

}  // namespace
}  // namespace braze::plan
