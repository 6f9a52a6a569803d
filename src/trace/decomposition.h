// PyTorch's decompositions of operators, written in Python, as shape functions: most take symbolic sizes where the Meta kernel of C++
// does not.
#pragma once
#include <ATen/core/stack.h>

#include "trace/op_info.h"

namespace braze::trace {

// Runs the decomposition of the operator on meta tensors and replaces the arguments on the stack by its results. False: there is
// none, or it raised; then the stack is not changed. The caller turned tracing off.
bool run_decomposition(const c10::OperatorHandle& op, const OpInfo& info, torch::jit::Stack& stack);

}  // namespace braze::trace
