// Masks of attention on a CPU that turn out, as the call is made, to forbid nothing, or what comes after each query and
// nothing else: a tokenizer's mask of ones, joined with the causal one, is such. PyTorch's kernel then reads no mask,
// and computes half of the scores of the causal form. What is made of positions alone is known before
// (passes/causal_masks.h), and the same masks count as such there.
#pragma once
#include <ATen/core/ivalue.h>

#include <optional>
#include <vector>

#include "launch/extern.h"

namespace braze::launch {

class AttentionMask {
 public:
  // nullopt: another operator, or it is called without a mask or as causal.
  static std::optional<AttentionMask> of(const plan::Extern& step);
  // Takes the mask out of the arguments where it says what its absence says. It reads as far as the first element that
  // is none of such a mask's, on PyTorch's threads.
  void leave_out(std::vector<c10::IValue>& arguments) const;

 private:
  AttentionMask(size_t query, size_t causal, size_t mask) : query_(query), causal_(causal), mask_(mask) {}
  size_t query_, causal_, mask_;  // arguments
};

}  // namespace braze::launch
