// Compiled regions whose outputs need gradients. No torch header.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace braze::trace {

// What differentiate() added to a captured graph.
struct Gradients {
  size_t results = 0;                // outputs that finish() was asked for; bases that only views need come after them
  size_t outputs = 0;                // graph.outputs[outputs + k] is the gradient of input `inputs[k]` (invalid: none)
  std::vector<uint32_t> tangents;    // inputs that are gradients of outputs, appended by differentiate()
  std::vector<uint32_t> tangent_of;  // of each of them: the output; one after `results` that is an input of the graph is what was written to that
  std::vector<uint32_t> inputs;      // every input that requires grad
  std::vector<uint32_t> read_inputs, read_outputs;  // whose memory the backward reads
};

// After Tracer::finish(), when the captured graph needs grad: runs PyTorch's autograd engine on its outputs under the same
// recorder, which makes it a joint graph. What the backward decides on open sizes is added to the captured guards. Needs the GIL.
// Throws Unsupported (OpenSizes where fixed sizes may do); the captured graph is then spent, the tracer is not.
Gradients differentiate(Tracer& tracer, Captured& captured);

struct TrainingReport {
  size_t backward_kernels = 0, backward_externs = 0;  // of what has been compiled so far
  int64_t saved_bytes = 0;                            // kept for the backward, without parameters
  std::string partition;                              // what is saved, and what is computed again
};

// Forward and backward behind one node of PyTorch's autograd graph. Report's figures are of both. The backward is compiled when
// it first runs, for the outputs that have gradients.
class TrainingRunnable : public Runnable {
 public:
  // Compiles the backward for all outputs now.
  virtual void prepare_backward() = 0;
  virtual TrainingReport training_report() const = 0;
  // What runs the region uncompiled where its derivatives are to be differentiated again. Only the tracer's calls are kept.
  virtual void keep_uncompiled(std::unique_ptr<Tracer> tracer) = 0;
};
// Throws Unsupported or InternalError. must_compile: a backward that cannot be compiled is an error when it runs; else PyTorch's operators
// are called one by one, and it is said.
std::unique_ptr<TrainingRunnable> make_training_runnable(Captured captured, Gradients gradients, const Options& options, bool texts = false,
                                                         bool must_compile = false);

}  // namespace braze::trace
