// Which of two forms of the same code is faster, found by few timings among many calls.
//
// A call is one of a program's. The record says when both forms are to be timed, and takes the times; it knows no
// clock.
//  - Call kProbeAt is timed as it is. From call kFirstSample on both forms are timed, at the calls whose number is that
//    one times a power of two, at most kMostSamples times.
//  - All that timing costs stays below kFreeSeconds and kShare of what the calls themselves take; what would go beyond
//    is put off until enough calls were made. What is not known before it ran (the first run of the other form) may
//    exceed it once.
//  - The calls' form is taken once it was faster by kMargin in kToCalls samples in a row, the compiled one once it was
//    in kToCompiled samples in a row or by kClear in one, or when the last sample is over. A decision is never taken
//    back: the two forms round differently.
// Not thread-safe.
#pragma once
#include <cstddef>
#include <cstdint>

namespace braze {

class SpeedRecord {
 public:
  static constexpr uint64_t kProbeAt = 4, kFirstSample = 8;
  static constexpr int kMostSamples = 8, kToCalls = 3, kToCompiled = 2;
  static constexpr double kMargin = 1.1, kClear = 3, kShare = 0.01, kFreeSeconds = 0.05;

  enum class Form : uint8_t { Open, Compiled, Calls };
  enum class Task : uint8_t { Run, Probe, Sample };

  // Counts a call and says what is to be done with it besides.
  Task next() { return ++calls_ < next_ || form_ != Form::Open ? Task::Run : due(); }
  void probed(double seconds) { compiled_ = seconds; }
  // This call was no time for what next() said: a later one may be.
  void put_off() { next_ = calls_ + kFirstSample; }
  // Seconds of one run of each form, and what finding out took in all.
  void sampled(double compiled, double calls, double spent);
  void settle(Form form) { form_ = form; }

  Form form() const { return form_; }
  int samples() const { return samples_; }
  uint64_t calls() const { return calls_; }
  // Seconds: the probe's, then the least of the samples that the decision rests on; 0: not known.
  double compiled_seconds() const { return compiled_; }
  double calls_seconds() const { return by_calls_; }
  // Runs of each form that one timing is to be of, so that a clock of a microsecond's grain tells them apart.
  size_t runs_in_a_row() const;
  size_t rounds() const { return compiled_ < 1e-3 ? 3 : 1; }

 private:
  Task due();

  uint64_t calls_ = 0, next_ = kProbeAt;
  Form form_ = Form::Open;
  int samples_ = 0, in_a_row_ = 0;
  Form ahead_ = Form::Open;  // in the last in_a_row_ samples
  double compiled_ = 0, by_calls_ = 0, spent_ = 0, cost_ = 0;
};

}  // namespace braze
