// How a failure of ours in a run of a compiled graph is told from one that eager code has as well.
#pragma once
#include <Python.h>

namespace braze {
class InternalError;
}

namespace braze::launch {

// The class of exceptions (a RuntimeError) that InternalError becomes when a graph runs. Borrowed; needs the GIL.
PyObject* internal_failure();
// Throws it for torch's handlers to set. Takes the GIL.
[[noreturn]] void raise_internal_failure(const InternalError& e);

}  // namespace braze::launch
