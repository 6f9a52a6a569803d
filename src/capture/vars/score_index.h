// Indexing by the numbers that a function of attention's scores is given.
#pragma once
#include "capture/eval/translator.h"

namespace braze::capture {

class TensorVariable;

// t[key] inside of such a function, where the key is numbers alone and one of them a tensor: the element, which eager
// would read the number for. nullptr: another key, or no such function.
Variable* element_of_scores(Translator& tr, TensorVariable* t, Variable* key);

}  // namespace braze::capture
