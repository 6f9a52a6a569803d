// Stand-ins, in the index of a dict or set, for values whose class says itself what their hash and equality are.
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

// A real object with this hash, whose comparison evaluates `==` on the variables. The same variable is equal to itself
// without a comparison, as in CPython.
Ref make_key(Translator& tr, Variable* v, Py_hash_t hash);

// v.hash_key(), for a key of a dict or an element of a set.
Ref key_of(Translator& tr, Variable* v);

// The hash of an object whose __hash__ returned this. Raises TypeError when it is no integer.
Py_hash_t hash_said(Translator& tr, Variable* returned);

// Whether such an object is part of a key of an index. It is of this capture alone: no guard may hold it.
bool holds_made_key(PyObject* key);

// A comparison that failed left its C++ exception behind and a Python exception in its place: throws the former, if
// any.
void rethrow_from_key();

}  // namespace braze::capture
