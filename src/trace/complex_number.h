// Complex numbers of Python as operands.
#pragma once
#include <ATen/core/ivalue.h>

#include <cstddef>

namespace braze::trace {

// Graphs have no complex numbers: among the `count` operands of a call each one that PyTorch wrapped in a tensor
// becomes a plain 0-dim tensor, of the dtype that PyTorch computes the call in, so that the result is of the same one.
void unwrap_complex_numbers(c10::IValue* operands, size_t count);

}  // namespace braze::trace
