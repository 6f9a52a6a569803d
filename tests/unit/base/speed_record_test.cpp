#include "base/speed_record.h"

#include <gtest/gtest.h>

#include <vector>

namespace braze {
namespace {

using Form = SpeedRecord::Form;
using Task = SpeedRecord::Task;

// Makes calls until the form is known or `most` were made; the calls that were samples.
template <class Times>
std::vector<uint64_t> make_calls(SpeedRecord& r, uint64_t most, Times times) {
  std::vector<uint64_t> at;
  while (r.form() == Form::Open && r.calls() < most) {
    switch (r.next()) {
      case Task::Run: break;
      case Task::Probe: r.probed(times(-1).first); break;
      case Task::Sample: {
        auto [compiled, calls] = times(r.samples());
        at.push_back(r.calls());
        r.sampled(compiled, calls, (compiled + calls) * static_cast<double>(r.runs_in_a_row() * r.rounds()));
      }
    }
  }
  return at;
}

TEST(SpeedRecord, TakesTheCallsAfterThreeSamplesInARow) {
  SpeedRecord r;
  auto at = make_calls(r, 1000, [](int) { return std::pair(20e-6, 10e-6); });
  EXPECT_EQ(r.form(), Form::Calls);
  EXPECT_EQ(at, (std::vector<uint64_t>{8, 16, 32}));
  EXPECT_DOUBLE_EQ(r.compiled_seconds(), 20e-6);
  EXPECT_DOUBLE_EQ(r.calls_seconds(), 10e-6);
}

TEST(SpeedRecord, StaysCompiledAfterTwo) {
  SpeedRecord r;
  auto at = make_calls(r, 1000, [](int) { return std::pair(10e-6, 20e-6); });
  EXPECT_EQ(r.form(), Form::Compiled);
  EXPECT_EQ(at, (std::vector<uint64_t>{8, 16}));
}

TEST(SpeedRecord, StaysCompiledAfterOneThatIsClear) {
  SpeedRecord r;
  auto at = make_calls(r, 1000, [](int) { return std::pair(10e-6, 40e-6); });
  EXPECT_EQ(r.form(), Form::Compiled);
  EXPECT_EQ(at, (std::vector<uint64_t>{8}));
}

TEST(SpeedRecord, NoiseDoesNotSwitch) {
  SpeedRecord r;
  auto at =
      make_calls(r, 1 << 20, [](int i) { return i % 3 == 2 ? std::pair(10e-6, 10e-6) : std::pair(20e-6, 10e-6); });
  EXPECT_EQ(r.form(), Form::Compiled);
  EXPECT_EQ(at.size(), static_cast<size_t>(SpeedRecord::kMostSamples));
}

TEST(SpeedRecord, WithinTheMarginItStaysCompiled) {
  SpeedRecord r;
  auto at = make_calls(r, 1 << 20, [](int) { return std::pair(10.5e-6, 10e-6); });
  EXPECT_EQ(r.form(), Form::Compiled);
  EXPECT_EQ(at.back(), SpeedRecord::kFirstSample << (SpeedRecord::kMostSamples - 1));
}

TEST(SpeedRecord, WhatIsDearWaits) {
  SpeedRecord r;
  double spent = 0;
  auto at = make_calls(r, 100000, [&](int i) {
    if (i >= 0) spent += 3;
    EXPECT_LE(spent, SpeedRecord::kFreeSeconds + SpeedRecord::kShare * static_cast<double>(r.calls()));
    return std::pair(1.0, 2.0);
  });
  EXPECT_EQ(at.size(), 2u);
  EXPECT_GE(at[0], 300u);  // 3 s are a hundredth of 300 s
}

TEST(SpeedRecord, ACallAtABadTimeIsNotTheLast) {
  SpeedRecord r;
  int put_off = 0;
  while (put_off < 5) {
    Task t = r.next();
    if (t == Task::Probe) r.probed(1e-5);
    if (t == Task::Sample) r.put_off(), ++put_off;
  }
  EXPECT_EQ(r.calls(), 8u + 4 * SpeedRecord::kFirstSample);
  EXPECT_EQ(r.samples(), 0);
}

TEST(SpeedRecord, WhatIsSettledIsNotAsked) {
  SpeedRecord r;
  r.settle(Form::Compiled);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(r.next(), Task::Run);
}

}  // namespace
}  // namespace braze
