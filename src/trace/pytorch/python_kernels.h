// PyTorch's decompositions of operators, written in Python, as shape functions: most take symbolic sizes where the Meta
// kernel of C++ does not.
#pragma once
#include <ATen/core/stack.h>
#include <torch/version.h>

#include <functional>
#include <optional>

#include "trace/op_info.h"

namespace braze::pytorch {

// From 2.15 on kernels for Meta that are written in Python ask sizes for numbers before they fail, where what they call
// does not take symbols.
inline constexpr bool kKernelsAskBeforeTheyFail = TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 15;

// Runs the decomposition of the operator on meta tensors and replaces the arguments on the stack by its results. False:
// there is none, or it raised; then the stack is not changed. The caller turned tracing off.
bool run_decomposition(const c10::OperatorHandle& op, const trace::OpInfo& info, torch::jit::Stack& stack);

// The same by the kernel for fakes that a program registered for an operator of its own (torch.library.register_fake).
// `new_size` makes the sizes of results that depend on values: at least, at most. False: there is none. What it raises
// comes through. `on_cpu`: so are its operands, and what it makes without naming a device.
using NewSize = std::function<c10::SymInt(int64_t, std::optional<int64_t>)>;
bool run_fake_kernel(const c10::OperatorHandle& op, const trace::OpInfo& info, torch::jit::Stack& stack,
                     const NewSize& new_size, bool on_cpu);

}  // namespace braze::pytorch
