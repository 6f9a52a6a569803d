// Python's numbers as operands of compiled code.
#pragma once
#include <ATen/core/ivalue.h>
#include <Python.h>

#include <cstddef>
#include <cstdint>

namespace braze::trace {

// A new 0-dim float64 tensor on the CPU; nullptr with a Python exception set.
PyObject* tensor_of_number(double value);
// The same of int64.
PyObject* tensor_of_integer(int64_t value);

// Graphs have no complex numbers: among the `count` operands of a call each one that PyTorch wrapped in a tensor
// becomes a plain 0-dim tensor, of the dtype that PyTorch computes the call in, so that the result is of the same one.
void unwrap_complex_numbers(c10::IValue* operands, size_t count);

}  // namespace braze::trace
