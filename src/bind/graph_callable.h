// PyTorch captured, we compile: a GraphModule as a native callable.
#pragma once
#include <Python.h>

#include "base/options.h"

namespace braze::bind {

// A callable on the module's inputs, or None when this module can't be compiled (it then runs as it is). New reference;
// nullptr: an exception is set.
PyObject* compile_graph_module(PyObject* gm, PyObject* example_inputs, const Options& options);

}  // namespace braze::bind
