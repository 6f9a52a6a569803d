// Calls of Python functions and of classes.
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

class FunctionVariable;

// Runs a Python function symbolically. `resumable`: its caller only waits for the result to push.
Variable* inline_function(Translator&, FunctionVariable* fn, Args& args, bool resumable);
Variable* instantiate(Translator&, PyTypeObject* cls, Args& args);
// What the __new__ of a class in C makes, for that class or one derived from it.
Variable* builtin_new(Translator&, PyTypeObject* cls, PyObject* new_function, Args& args);

}  // namespace braze::capture
