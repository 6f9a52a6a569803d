// The backward of a captured graph, recorded beside it. No torch header.
#pragma once
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "trace/trace.h"

namespace braze::trace {

// What differentiate() added to a captured graph.
struct Gradients {
  size_t results = 0;                // outputs that finish() was asked for; bases that only views need come after them
  size_t outputs = 0;                // graph.outputs[outputs + k] is the gradient of input `inputs[k]`
  std::vector<uint32_t> tangents;    // inputs that are gradients of outputs, appended by differentiate()
  std::vector<uint32_t> tangent_of;  // of each of them: the output; one after `results` that is an input of the graph
                                     // is what was written to that
  std::vector<uint32_t> inputs;      // every input that has a gradient
  std::vector<uint32_t> read_inputs, read_outputs;  // whose memory the backward reads
  // Per pair of tangents, see shared_histories(); empty: each shares all with each other.
  std::vector<std::vector<bool>> shared;
};

// The number that autograd gives the next node of this thread.
uint64_t next_node();

// What one call's backward does cannot be traced: `node()` is the number of the first node of its kind among those of
// the captured calls.
class BackwardRefused : public Unsupported {
 public:
  BackwardRefused(const Unsupported& why, uint64_t node) : Unsupported(why), node_(node) {}
  uint64_t node() const { return node_; }

 private:
  uint64_t node_;
};

// After Tracer::finish(), when the captured graph needs grad: runs PyTorch's autograd engine on its outputs under the
// same recorder, which makes it a joint graph. What the backward decides on open sizes is added to the captured guards.
// Needs the GIL. Throws Unsupported (where sizes are open, fixed ones may do), BackwardRefused where it is known of
// which call; the captured graph is then spent, the tracer is not.
Gradients differentiate(Tracer& tracer, Captured& captured);

}  // namespace braze::trace
