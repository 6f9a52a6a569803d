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
// The part of t that [key] stands for, as a view, where integers in the key are what only the run knows, integer
// tensors of no dimension too; nullptr: it is of another kind, and `key` has numbers for such tensors where it may.
Variable* part_by_numbers(Translator& tr, TensorVariable* t, Variable*& key);
// True: `condition` is a bool that only the run knows, and the run checks it.
bool assume(Translator& tr, Variable* condition, const char* exception, Variable* message);

}  // namespace braze::capture
