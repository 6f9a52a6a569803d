// The content of a functools.lru_cache, looked at without calling it: a call counts, and moves what it finds.
#pragma once
#include <Python.h>

namespace braze::capture::cpython {

// Whether this CPython keeps these caches as is known here; the other functions may only be called then.
bool knows_lru_cache();
// The key of a call (new reference); nullptr with an exception set: it can't be hashed.
PyObject* lru_key(PyObject* cache, PyObject* args, PyObject* kwargs);
// What is cached under a key, borrowed; nullptr: nothing.
PyObject* lru_peek(PyObject* cache, PyObject* key);
// Takes back that a call was counted: what was called ahead of its time is counted when it comes.
void lru_uncount(PyObject* cache);
// The function that is called for what is not cached: a new reference; nullptr with an exception set.
PyObject* lru_function(PyObject* cache);
// Whether one more result drives out an older one.
bool lru_full(PyObject* cache);
// Whether it keeps results at all.
bool lru_keeps(PyObject* cache);

}  // namespace braze::capture::cpython
