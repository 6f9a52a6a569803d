// Calls of Python functions and of classes.
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

class FunctionVariable;
struct Frame;

// Runs a Python function symbolically. `resumable`: its caller only waits for the result to push.
Variable* inline_function(Translator&, FunctionVariable* fn, Args& args, bool resumable);
// Whether code of this function is evaluated at all.
bool is_evaluated(PyObject* function);
// That it has the code and the globals that it has now, and no mark that keeps it from being compiled.
void guard_code(Translator&, FunctionVariable* fn);
// A frame that is to run the function, without its arguments.
Frame* frame_of(Translator&, FunctionVariable* fn);
Variable* instantiate(Translator&, PyTypeObject* cls, Args& args);
// The same past a __call__ of its metaclass: type.__call__.
Variable* type_call(Translator&, PyTypeObject* cls, Args& args);
// What the __new__ of a class in C makes, for that class or one derived from it.
Variable* builtin_new(Translator&, PyTypeObject* cls, PyObject* new_function, Args& args);

}  // namespace braze::capture
