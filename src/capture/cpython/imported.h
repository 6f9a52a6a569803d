#pragma once
#include <Python.h>

namespace braze::capture {

// What lies at a dotted path in a module (the module itself without one), kept for the life of the process. Where it is
// missing: InternalError, or, if `optional`, nullptr without a Python exception.
PyObject* imported(const char* module, const char* path, bool optional = false);

// The class of `int | str`.
PyTypeObject* union_type();

// functools.Placeholder, which stands in a partial for an argument of the call; nullptr before 3.14.
PyObject* partial_placeholder();

// The class of object().__str__: a special method of a class written in C, bound.
PyTypeObject* method_wrapper_type();

}  // namespace braze::capture
