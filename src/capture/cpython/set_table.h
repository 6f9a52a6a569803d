// Sets of CPython with a given table: a set's order of iteration depends on how it came to be, not on its elements
// alone.
#pragma once
#include <vector>

#include "capture/cpython/ref.h"

namespace braze::capture {

// The next element, borrowed, as the set itself has it, whatever its class says of an iteration. `place`: 0 before the
// first. nullptr: there is none.
PyObject* next_element(PyObject* set, Py_ssize_t& place);

// A set or frozenset (`type`) that iterates as `like` does.
Ref set_like(PyTypeObject* type, PyObject* like);
// `set` (a set, or a fresh frozenset) becomes the set of `elements`, which stand for the keys of `like` in the order of
// its iteration, and iterates in their order. Where one has another hash than the key, they are added one by one. False
// with a Python exception: one cannot be hashed or compared.
bool set_becomes(PyObject* set, PyObject* like, const std::vector<PyObject*>& elements);

}  // namespace braze::capture
