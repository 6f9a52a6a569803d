// Stable sorting of variables, as list.sort and sorted do it.
#pragma once
#include <vector>

#include "capture/eval/variable.h"

namespace braze::capture {

// key: nullptr or None for the values themselves.
std::vector<Variable*> sort_variables(Translator&, const std::vector<Variable*>& values, Variable* key, bool reverse);

}  // namespace braze::capture
