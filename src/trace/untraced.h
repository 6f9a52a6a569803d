// The program's own code, run for real while a capture goes on.
#pragma once
#include <Python.h>

#include <cstddef>

namespace braze::trace {

// Calls `fn`, whose operators run on tensors as they are and are not recorded. New reference; nullptr: an exception is
// set. Needs the GIL.
PyObject* call_untraced(PyObject* fn, PyObject* const* pos, size_t n, PyObject* kw);

}  // namespace braze::trace
