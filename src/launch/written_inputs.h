// What a run of compiled code writes to its inputs. No torch header.
#pragma once
#include <Python.h>

namespace braze::launch {

// Whether a run on this thread that fails is not to be made again: it has changed its inputs before its end
// (schedule/call_in_place.h), or tells of a kernel that was launched before. Returns what it was before.
bool note_not_again(bool yes);

// A tensor without history on the same memory, with the same version: what is kept of it keeps its geometry when that
// of `tensor` changes. Owned; nullptr with an exception set.
PyObject* alias(PyObject* tensor);

// Counts so many writes to a tensor, as autograd does; takes them back where `n` is negative.
void count_writes(PyObject* tensor, int n);

}  // namespace braze::launch
