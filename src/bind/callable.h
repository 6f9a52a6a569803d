// The native callable that braze.compile() returns.
#pragma once
#include <Python.h>

#include <memory>

#include "capture/frames/region.h"

namespace braze::bind {

// Makes the type and adds it to the module as `Compiled`. False: an exception is set.
bool init_callable(PyObject* module);

// function: a Python function. bound: its first argument, or nullptr; with replaces_first the call's own first argument
// is dropped for it (the __call__ of a compiled module, whose class shares the original's state). New reference.
PyObject* new_callable(std::shared_ptr<capture::Region> region, PyObject* function, PyObject* bound,
                       bool replaces_first);

// The region of a Compiled object, or nullptr with a TypeError set.
capture::Region* region_of(PyObject* callable);

}  // namespace braze::bind
