// Binds call arguments to a function's slots as CPython's own call does.
#pragma once
#include <vector>

#include "capture/cpython/ref.h"

namespace braze::capture {

// slots: co_nlocalsplus entries, all nullptr; filled with borrowed references. owned: keeps what was made (*args,
// **kwargs). The slots of free variables receive the cells of the function's closure. False: the arguments do not fit
// (no exception is set; an ordinary call raises the right one).
bool bind_arguments(PyFunctionObject* function, PyObject* const* args, size_t nargs, PyObject* kwnames,
                    PyObject** slots, std::vector<Ref>& owned);

}  // namespace braze::capture
