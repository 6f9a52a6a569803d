// Which nests may share a launch.
#include "schedule/concurrent.h"

#include <gtest/gtest.h>

#include "loop/loop.h"

namespace braze::schedule {
namespace {

using Runs = std::vector<std::vector<uint32_t>>;

std::string buffer(int number, const std::string& kind) {
  return "buffer %" + std::to_string(number) + " \"b" + std::to_string(number) + "\" f32 cuda:0 " + kind + "\n";
}

// to[i] = sin(from[i]) of 64 elements.
std::string nest(const std::string& name, int from, int to) {
  return "nest \"" + name +
         "\" outer [i0: 64] vector outer tile 0 grain 1 locs [] {\n  stage [] {\n    v0 = load f32 %" +
         std::to_string(from) + "[i0]\n    v1 = sin f32 v0\n    store %" + std::to_string(to) + "[i0] = v1\n  }\n}\n";
}

std::string input(int number) { return "input " + std::to_string(number) + " sizes [64] strides [1] offset 0"; }
const std::string kOutput = "output sizes [64] strides [1]", kTemp = "temp sizes [64] strides [1]";

std::string output(int number) {
  return "output view %" + std::to_string(number) + " f32 sizes [64] strides [1] offset 0\n";
}

Runs runs_of(const std::string& text, const std::vector<bool>& apart = {}) {
  loop::Program p = loop::parse("program\n" + text);
  loop::verify(p);
  return concurrent_nests(p, plan_memory(p), apart);
}

TEST(Concurrent, WhatReadsTheSameAndWritesApart) {
  std::string text = buffer(0, input(0)) + buffer(1, kOutput) + buffer(2, kOutput) + buffer(3, kOutput) +
                     nest("a", 0, 1) + nest("b", 0, 2) + nest("c", 0, 3) + output(1) + output(2) + output(3);
  EXPECT_EQ(runs_of(text), (Runs{{0, 1, 2}}));
  EXPECT_EQ(runs_of(text, {false, true, false}), (Runs{{0}, {1}, {2}}));
}

TEST(Concurrent, NotWhatReadsAResult) {
  EXPECT_EQ(runs_of(buffer(0, input(0)) + buffer(1, kOutput) + buffer(2, kOutput) + buffer(3, kOutput) +
                    nest("a", 0, 1) + nest("b", 1, 2) + nest("c", 0, 3) + output(1) + output(2) + output(3)),
            (Runs{{0}, {1, 2}}));
}

// The third buffer has the place of the first, which is dead by then: what writes it may not run beside what reads the
// first.
TEST(Concurrent, NotWhatTookThePlaceOfWhatAnotherReads) {
  std::string text = buffer(0, input(0)) + buffer(1, kTemp) + buffer(2, kOutput) + buffer(3, kTemp) +
                     buffer(4, kOutput) + nest("a", 0, 1) + nest("b", 1, 2) + nest("c", 0, 3) + nest("d", 3, 4) +
                     output(2) + output(4);
  loop::Program p = loop::parse("program\n" + text);
  MemoryPlan memory = plan_memory(p);
  ASSERT_EQ(memory.buffers[loop::BufferId(size_t{1})].offset, memory.buffers[loop::BufferId(size_t{3})].offset);
  EXPECT_EQ(concurrent_nests(p, memory), (Runs{{0}, {1}, {2}, {3}}));
}

// What is written to an input lies in the input's own memory.
TEST(Concurrent, NotWhatWritesAnInputThatAnotherReads) {
  std::string head = buffer(0, input(0)) + buffer(1, input(1)) + buffer(2, kTemp) + buffer(3, kOutput);
  std::string tail = output(3) + "writeback 0 view %2 f32 sizes [64] strides [1] offset 0\n";
  EXPECT_EQ(runs_of(head + nest("reads", 0, 3) + nest("writes", 1, 2) + tail), (Runs{{0}, {1}}));
  EXPECT_EQ(runs_of(head + nest("reads", 1, 3) + nest("writes", 1, 2) + tail), (Runs{{0, 1}}));
}

TEST(Concurrent, NestsOfACpuAreAlone) {
  std::string text = buffer(0, input(0)) + buffer(1, kOutput) + buffer(2, kOutput) + nest("a", 0, 1) + nest("b", 0, 2) +
                     output(1) + output(2);
  for (size_t at; (at = text.find("cuda:0")) != std::string::npos;) text.replace(at, 6, "cpu");
  EXPECT_EQ(runs_of(text), (Runs{{0}, {1}}));
}

}  // namespace
}  // namespace braze::schedule
