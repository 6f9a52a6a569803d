// Errors of calls that a C function's signature does not allow.
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

// Raises the TypeError of CPython when the callable's signature has no room for as many arguments, or for keywords of
// these names; such an error comes before the function looks at an argument. Returns when the call may be right, or
// nothing is known. `owner`: the class of a method, whose self is not among the arguments; else nullptr.
void raise_if_miscalled(Translator& tr, PyObject* callable, PyTypeObject* owner, const Args& args);

}  // namespace braze::capture
