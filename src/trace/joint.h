// Backward by PyTorch's own autograd engine, run on fake tensors while a recorder notes the operators.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "graph/graph.h"
#include "trace/recorder.h"

namespace braze::trace {

struct JointTrace {
  std::vector<graph::ValueId> tangents;   // per root: an input of kind Tangent
  std::vector<graph::ValueId> gradients;  // per leaf; invalid where none reaches it
};

// `roots`: functional fakes with history; `leaves`: functional fakes that require grad. Needs the GIL, which it gives up
// meanwhile. Throws Unsupported for what eager would raise in its backward, too.
JointTrace trace_backward(Recorder& recorder, const std::vector<at::Tensor>& roots, const std::vector<at::Tensor>& leaves);

}  // namespace braze::trace
