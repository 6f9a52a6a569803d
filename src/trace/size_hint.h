// For Python: the value that a size has in the call that is captured.
#pragma once
#include <Python.h>

namespace braze::trace {

// The int itself; of a torch.SymInt its value in this call, None where only the run knows it. nullptr: an exception is
// set.
PyObject* size_hint(PyObject* size);

}  // namespace braze::trace
