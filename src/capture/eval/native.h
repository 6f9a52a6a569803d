// Looks at real objects while capturing. Each says why the entry that is made need not look again (ground.h); the
// functions of the C API that do the same without saying so are poisoned in the evaluator.
#pragma once
#include <Python.h>

#include "capture/guards/ground.h"

namespace braze::capture::native {

// An attribute, by the object's own protocol: code of the program's may run, so the ground has to cover that too (but
// no torch function is told of a tensor that is asked). A new reference; nullptr with an exception.
PyObject* attr(Ground, PyObject* o, const char* name);
PyObject* attr(Ground, PyObject* o, PyObject* name);
// Of a tensor that the capture made or knows as a fake: the compiler's own question, which no torch function of the
// program's hears of.
PyObject* of_tensor(PyObject* tensor, const char* name);
PyObject* of_tensor(PyObject* tensor, PyObject* name);
// What a class has under this name, itself or from a base, no descriptor applied. Borrowed; nullptr: nothing.
PyObject* type_attr(Ground, PyTypeObject* type, PyObject* name);
PyObject* type_attr(Ground, PyTypeObject* type, const char* name);
// Of a dict, whatever its class. Borrowed; nullptr: not there, or an exception (of a key that cannot be hashed).
PyObject* item(Ground, PyObject* dict, PyObject* key);
PyObject* item(Ground, PyObject* dict, const char* key);
int is_instance(Ground, PyObject* o, PyObject* cls);
int is_subclass(Ground, PyObject* derived, PyObject* cls);
// A function of the module builtins, by name: as it was when it was first asked for. Borrowed.
PyObject* builtin(const char* name);

}  // namespace braze::capture::native
