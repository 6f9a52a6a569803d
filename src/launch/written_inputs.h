// What a run of compiled code writes to its inputs. No torch header.
#pragma once
#include <Python.h>

namespace braze::launch {

// Whether a run on this thread has changed its inputs before its end (schedule/call_in_place.h): one that fails after
// that is not made again. Returns what it was before.
bool note_inputs_written(bool yes);

// A tensor without history on the same memory, with the same version: what is kept of it keeps its geometry when that
// of `tensor` changes. Owned; nullptr with an exception set.
PyObject* alias(PyObject* tensor);

// Counts so many writes to a tensor, as autograd does; takes them back where `n` is negative.
void count_writes(PyObject* tensor, int n);

}  // namespace braze::launch
