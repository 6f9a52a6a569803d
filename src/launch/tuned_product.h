// The products of a plan that kernels of templates may compute in the library's place (plan::Tuned).
//
// A choice that this process or the disk knows is taken when the graph is made. Else the kernels are compiled from then
// on in processes of their own, and timed when the first call comes to the product: on that call's own operands, which
// the library's way reads, too, with results that go to memory of their own, and with the GPU's cache emptied before
// each run, as weights come from memory in a model. Nothing is timed while a CUDA Graph is recorded. A graph spends at
// most Plan::tuning_seconds on it; kernels that are not there by then are not waited for. A call in which the choice is
// made is carried out by the library.
#pragma once
#include <memory>
#include <vector>

#include "launch/extern.h"

namespace braze::launch {

class TunedProducts {
 public:
  TunedProducts(const runtime::Program& program, const std::vector<runtime::KernelFn>& kernels);
  ~TunedProducts();
  // True: nothing is left to do of the step. `calls`: the library's, per step.
  bool replace(runtime::Frame& frame, TorchFrame& call, uint32_t step,
               const std::vector<std::unique_ptr<ExternCall>>& calls) const;

 private:
  class One;
  std::vector<std::unique_ptr<One>> all_;
  std::vector<One*> of_step_;  // empty: there are none
};

}  // namespace braze::launch
