// Compiled regions whose outputs need gradients. No torch header.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "launch/launch.h"
#include "trace/gradients.h"

namespace braze::launch {

struct TrainingReport {
  size_t backward_kernels = 0, backward_externs = 0;  // of what has been compiled so far
  int64_t saved_bytes = 0;                            // kept for the backward, without parameters
  std::string partition;                              // what is saved, and what is computed again
};

// Forward and backward behind one node of PyTorch's autograd graph. Report's figures are of both. The backward is
// compiled when it first runs, for the outputs that have gradients.
class TrainingRunnable : public Runnable {
 public:
  // Compiles the backward for all outputs now.
  virtual void prepare_backward() = 0;
  virtual TrainingReport training_report() const = 0;
  // What runs the region uncompiled where its derivatives are to be differentiated again.
  virtual void keep_uncompiled(std::unique_ptr<trace::TorchCalls> calls) = 0;
};
// Throws Unsupported or InternalError. must_compile: a backward that cannot be compiled is an error when it runs; else
// PyTorch's operators are called one by one, and it is said.
std::unique_ptr<TrainingRunnable> make_training_runnable(Captured captured, trace::Gradients gradients,
                                                         const Options& options, bool texts = false,
                                                         bool must_compile = false);

}  // namespace braze::launch
