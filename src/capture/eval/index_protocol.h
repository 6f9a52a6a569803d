// Objects of the user's that stand for numbers: __index__, __float__.
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

// What the object's __index__, a Python function, gives: an int; v itself where it is no such object.
Variable* index_of(Translator& tr, Variable* v);
// A key as `container` takes it: where that counts its items, objects with __index__ in it, also in a slice, are their
// ints.
Variable* as_key(Translator& tr, Variable* container, Variable* key);
// Arguments of a C function of numbers: objects with __float__ or __index__ as the number that the function would ask
// for.
Args as_numbers(Translator& tr, PyObject* function, const Args& args);

}  // namespace braze::capture
