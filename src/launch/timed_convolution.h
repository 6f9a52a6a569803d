// Convolutions on a CPU: by PyTorch's library, or as products of matrices, whichever timing finds faster
// (launch/timed_ways.h).
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <memory>

#include "launch/timed_ways.h"

namespace braze::launch {

class TimedConvolution {
 public:
  // nullptr: a step of another kind, or there is no time (nullptr).
  static std::unique_ptr<TimedConvolution> make(const plan::Plan& plan, const plan::Extern& step,
                                                const std::shared_ptr<TuningTime>& time);
  // What op.callBoxed(stack) does, with op aten::convolution.
  void run(const c10::OperatorHandle& op, torch::jit::Stack& stack);

 private:
  TimedConvolution(std::shared_ptr<TuningTime> time, bool on_disk) : ways_(std::move(time), on_disk) {}
  TimedWays ways_;
};

}  // namespace braze::launch
