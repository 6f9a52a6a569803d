// Options from Python.
#pragma once
#include <Python.h>

#include <optional>

#include "base/options.h"

namespace braze::bind {

// The defaults, as this PyTorch computes.
Options default_options();

// `dict`: None or a dict of names in base/options.def. Nothing: an exception is set that names the accepted ones.
std::optional<Options> options_from(PyObject* dict);

}  // namespace braze::bind
