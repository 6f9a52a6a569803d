// Tensors that a program writes as numbers (torch.tensor(0.5)), as bytes and back. No torch header.
#pragma once
#include <Python.h>

#include "base/bytes.h"

namespace braze::trace {

// False, and nothing is written: one that is large, on another device than the CPU or a GPU of CUDA's, or on memory
// that others may write. Waits for the GPU that it is on.
bool pack_literal(ByteWriter& out, PyObject* tensor);
// New reference. Throws InternalError for damaged bytes.
PyObject* unpack_literal(ByteReader& in);

}  // namespace braze::trace
