// What ends with objects that are let go of, exceptions with the frames of their traceback among them.
#pragma once
#include <Python.h>

namespace braze::capture {

// Whether code of the program's runs as this object is let go of, if nothing else holds it.
bool keeps_end(PyObject* object);

// Whether it may come to that, for generators that it holds, if they go on.
bool may_keep_end(PyObject* object);

// The same of the exception that is set: the end of a generator that a called function left before it was through, a
// `__del__`.
bool raised_keeps_end();

}  // namespace braze::capture
