// Floats that are computed from sizes that stay open (n / 2, math.sqrt(n), n ** -0.5): as long as nobody looks at one,
// no guard says what its value is. Beside a tensor it is an operand of the graph, computed there in float64; in a
// result the entry computes it as Python does. What asks for an integer, or how such a float compares, is answered from
// the sizes where that is exact.
#pragma once
#include "capture/eval/translator.h"

namespace braze::capture {

class LazyVariable;
class TensorVariable;

// v, if it is a float that was there before and that nobody looked at. nullptr: it is not.
LazyVariable* open_float(Variable* v);

// Whether v is a float that depends on an open size, and that nobody looked at.
bool is_size_float(Variable* v);
// a op b, where one is such a float or an open size and the result is a float. nullptr: not of that kind.
Variable* size_arithmetic(Translator& tr, int op, Variable* a, Variable* b);  // NB_ADD...
// math.sqrt, float, math.floor, int and the like of one. nullptr: not of that kind.
Variable* size_function(Translator& tr, PyObject* callable, const Args& args);
// nullptr: it is to be looked at.
Variable* size_comparison(Translator& tr, int op, Variable* a, Variable* b);  // Py_LT...
// An open size as a tensor of one element, float64 on the CPU.
TensorVariable* size_as_operand(Translator& tr, Variable* size);

}  // namespace braze::capture
