// Numbers read from tensors where the graph must not end (fullgraph=True): unbacked symbols.
#pragma once
#include "capture/eval/translator.h"

namespace braze::capture {

class TensorVariable;

// The method of that name of class Tensor; borrowed.
PyObject* tensor_method(const char* name);

// int(t), t.item() and the like: `as` says what Python asks for (nullptr: what the dtype is). nullptr: it cannot stay
// in the graph.
Variable* number_of(Translator& tr, TensorVariable* t, PyTypeObject* as);
// t.tolist(); nullptr: as above.
Variable* list_of_numbers(Translator& tr, TensorVariable* t);
// A key for a tensor's [] with integer tensors of no dimension, and tensors in its slices, replaced by their values.
Variable* with_numbers(Translator& tr, Variable* key);
// t[key] with integers in the key that only the run knows, as a view; nullptr: there is none, or it is of another kind.
Variable* select_by_numbers(Translator& tr, TensorVariable* t, Variable* key);
// True: `condition` is a bool that only the run knows, and the run checks it.
bool assume(Translator& tr, Variable* condition, const char* exception, Variable* message);

}  // namespace braze::capture
