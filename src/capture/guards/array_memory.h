// Tensors on the memory of arrays that a compiled entry gets from outside: sources of kind ArrayTensor lead to them.
#pragma once
#include <Python.h>

namespace braze::capture {

// numpy.ndarray (borrowed), or nullptr while NumPy is not imported.
PyTypeObject* array_type();
// A tensor that shares memory with a writable array of exactly that class (borrowed: it lives until the next
// forget_array_tensors() on this thread). nullptr, without an exception: none can.
PyObject* array_tensor(PyObject* array);
void forget_array_tensors();

}  // namespace braze::capture
