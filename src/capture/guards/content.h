// What objects implemented in C hold, where they have no fields that could be read in place: sources of kind Content
// lead to it.
#pragma once
#include <Python.h>

namespace braze::capture {

// Of a collections.deque: the tuple of its maxlen and its items; of a torch.Generator on the CPU, but for PyTorch's
// default one: that of its state, a tensor; of iterators of Python's own: as in cpython/iterators.h; of
// generators: as in cpython/generator.h; of a threading.local, of that very class: the dict of this thread. Taken anew
// when it is first asked for after a forget_contents() on this thread (borrowed: it lives until the next). nullptr,
// without an exception: nothing is known of objects of this class.
PyObject* content_of(PyObject* object);
void forget_contents();  // and the tensors of array_memory.h
// The class threading.local.
PyTypeObject* thread_local_type();

}  // namespace braze::capture
