// Floats that only the run knows: read from a tensor where the graph must not end, or drawn. Each is a 0-dim float64
// tensor on the CPU, whose arithmetic is that of Python's floats. What Python would raise for a value (a division by
// zero, the root of a negative number) the run checks.
#pragma once
#include "capture/eval/translator.h"

namespace braze::capture {

class TensorVariable;

// The value of a tensor of one element, of any real dtype, as a float.
Variable* float_of(Translator& tr, TensorVariable* t);
// An operator or comparison of which a side is such a float and the other a number. nullptr: it has no form in tensors.
Variable* float_arithmetic(Translator& tr, int op, Variable* a, Variable* b);  // NB_ADD...
Variable* float_comparison(Translator& tr, int op, Variable* a, Variable* b);  // Py_LT...
// A function of builtins, math or torch on numbers, one of which is such a float. nullptr: it has no form in tensors.
Variable* float_function(Translator& tr, PyObject* callable, const Args& args);
// What such a function of one float (one of those that give a float) is on tensors.
TensorVariable* float_operator(Translator& tr, PyObject* callable, TensorVariable* t);

}  // namespace braze::capture
