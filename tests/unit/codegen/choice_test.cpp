// Choices between ways to compute the same: by timing, and kept.
#include "codegen/choice.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>

namespace braze::codegen {
namespace {

namespace fs = std::filesystem;

TEST(TimeWays, TheFastestByAMargin) {
  auto fixed = [](const std::vector<double>& ms) { return [ms](size_t w) { return ms[w]; }; };
  EXPECT_EQ(time_ways(1, fixed({1.0})).chosen, 0u);
  EXPECT_EQ(time_ways(3, fixed({1.0, 0.9, 0.8})).chosen, 2u);
  EXPECT_EQ(time_ways(2, fixed({1.0, 0.98})).chosen, 0u);
  EXPECT_EQ(time_ways(2, fixed({1.0, 0.96})).chosen, 1u);
  // Between two that beat the library the better one counts, however little better.
  EXPECT_EQ(time_ways(3, fixed({1.0, 0.9, 0.895})).chosen, 2u);
  EXPECT_EQ(time_ways(3, fixed({1.0, 1.2, 3.0})).chosen, 0u);
}

TEST(TimeWays, OutliersDoNotCount) {
  std::vector<int> runs(2);
  Timing t = time_ways(2, [&](size_t w) { return ++runs[w] == 1 ? 50.0 : runs[w] == 4 ? 9.0 : w ? 0.5 : 1.0; });
  EXPECT_EQ(t.chosen, 1u);
  EXPECT_EQ(t.milliseconds, (std::vector<double>{1.0, 0.5}));
}

TEST(TimeWays, WhatFailsOrIsHopelessIsLeftAtThat) {
  std::vector<int> runs(4);
  Timing t = time_ways(4, [&](size_t w) {
    ++runs[w];
    if (w == 1) throw std::runtime_error("a wrong result");
    return w == 2 ? 10.0 : w == 3 ? 0.5 : 1.0;
  });
  EXPECT_EQ(t.chosen, 3u);
  EXPECT_LT(t.milliseconds[1], 0);
  EXPECT_LT(t.milliseconds[2], 0);
  EXPECT_EQ(runs[1], 1);
  EXPECT_LT(runs[2], runs[3]);
  EXPECT_THROW(time_ways(2, [](size_t) -> double { throw std::runtime_error("the library"); }), std::runtime_error);
}

TEST(TimeWays, AsManyTurnsAsThereIsTimeFor) {
  auto runs = [](double ms, int turns) {
    int n = 0;
    time_ways(2, [&](size_t w) { return n += w == 0, ms; }, turns);
    return n;
  };
  EXPECT_EQ(runs(0.1, kMostTurns), 1 + kMostTurns);  // and one to begin with
  EXPECT_EQ(runs(0.1, 3), 4);
  EXPECT_EQ(runs(50, 3), 4);
  EXPECT_LT(runs(50, kMostTurns), runs(0.1, kMostTurns));
}

TEST(KeptChoices, InTheProcessAndOnDisk) {
  char name[] = "/tmp/braze_choices_XXXXXX";
  std::string root = mkdtemp(name);
  Choices first(DiskCache(root + "/a"));
  EXPECT_FALSE(first.recall("product 1"));
  first.keep("product 1", "library", true);
  first.keep("product 2", "kernel", false);
  EXPECT_EQ(first.recall("product 1"), "library");
  EXPECT_EQ(first.recall("product 2"), "kernel");
  // What another process would find.
  auto found = [&](const std::string& key) {
    size_t files = 0;
    for (const auto& f : fs::directory_iterator(root + "/a")) files += f.is_regular_file();
    return std::pair(files, Choices(DiskCache(root + "/a")).recall(key));
  };
  EXPECT_EQ(found("product 1").first, 1u);
  EXPECT_EQ(found("product 1").second, "library");
  EXPECT_FALSE(Choices(DiskCache(root + "/a")).recall("product 3"));
  fs::remove_all(root);
}

}  // namespace
}  // namespace braze::codegen
