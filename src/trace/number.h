// Python's numbers as operands of compiled code.
#pragma once
#include <Python.h>

#include <cstdint>

namespace braze::trace {

// A new 0-dim float64 tensor on the CPU; nullptr with a Python exception set.
PyObject* tensor_of_number(double value);
// The same of int64.
PyObject* tensor_of_integer(int64_t value);

}  // namespace braze::trace
