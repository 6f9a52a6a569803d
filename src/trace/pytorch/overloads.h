// torch.ops.namespace.name stands for several operators (a packet of overloads), and PyTorch finds the one that a call
// means by trying each: of every argument that does not fit it makes a text, for which a fake has no elements.
#pragma once
#include <Python.h>

namespace braze::pytorch {

bool is_overload_packet(PyObject* function);

// The overload of a packet that these arguments mean, found with stand-ins for tensors: of the same dtype and number of
// axes. New reference; nullptr with a Python exception set. Needs the GIL.
PyObject* overload_of(PyObject* packet, PyObject* const* args, size_t nargs, PyObject* kwargs);

}  // namespace braze::pytorch
