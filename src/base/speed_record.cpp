#include "base/speed_record.h"

#include <algorithm>

namespace braze {

namespace {

constexpr double kEnoughSeconds = 100e-6;  // of a timing
constexpr double kOtherForm = 3;           // what a run of the other form is taken to cost before it is known

}  // namespace

size_t SpeedRecord::runs_in_a_row() const {
  if (compiled_ <= 0) return 1;
  return static_cast<size_t>(std::clamp(kEnoughSeconds / compiled_, 1.0, 16.0));
}

SpeedRecord::Task SpeedRecord::due() {
  if (compiled_ <= 0) {
    next_ = kFirstSample;
    return Task::Probe;
  }
  double cost = cost_;
  if (!samples_) cost = compiled_ * (1 + kOtherForm) * static_cast<double>(runs_in_a_row() * rounds());
  double over = spent_ + cost - kFreeSeconds;
  double calls = over / (kShare * compiled_);
  if (over > 0 && calls > static_cast<double>(calls_)) {
    next_ = static_cast<uint64_t>(std::min(calls, 1e15)) + 1;
    return Task::Run;
  }
  next_ = std::max(calls_ + 1, kFirstSample << (samples_ + 1));
  return Task::Sample;
}

void SpeedRecord::sampled(double compiled, double calls, double spent) {
  ++samples_;
  spent_ += spent;
  cost_ = spent;
  Form ahead = compiled > kMargin * calls ? Form::Calls : calls > kMargin * compiled ? Form::Compiled : Form::Open;
  bool same = ahead == ahead_ && in_a_row_;
  in_a_row_ = same ? in_a_row_ + 1 : 1;
  ahead_ = ahead;
  compiled_ = same ? std::min(compiled_, compiled) : compiled;
  by_calls_ = same ? std::min(by_calls_, calls) : calls;
  if (ahead == Form::Calls && in_a_row_ >= kToCalls)
    form_ = Form::Calls;
  else if ((ahead == Form::Compiled && in_a_row_ >= kToCompiled) || calls > kClear * compiled ||
           samples_ >= kMostSamples)
    form_ = Form::Compiled;
}

}  // namespace braze
