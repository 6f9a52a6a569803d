// PyTorch's code takes symbolic sizes only in part: what it refused with them is called with plain numbers, guarded.
#pragma once
#include <Python.h>

#include <functional>

#include "trace/recorder.h"

namespace braze::trace {

// Whether the Python exception that is set may be about symbolic sizes: any error may, since only a call without them
// tells; so may a break for an operator that is not taken, but not one for another reason.
bool may_be_of_symbols();

// Calls `fn` with the sizes of this call in place of symbols (is_symbol: the torch.SymInt and SymBool objects of the
// capture) and of tensors' symbolic sizes. To be called with an exception set, which stays where there are no symbols
// among the arguments; nullptr with a Python exception set.
PyObject* call_with_fixed_sizes(Recorder& recorder, const std::function<bool(PyObject*)>& is_symbol, PyObject* fn,
                                PyObject* const* args, size_t nargs, PyObject* kwargs);

}  // namespace braze::trace
