// Calls with a number that is not known while capturing: a float that varies from call to call, or a tensor where an
// operator takes a number (a learning rate over a counted step, as optimizers have them). Such numbers become operands
// of the graph.
#pragma once
#include "capture/eval/variable.h"

namespace braze::capture {

// args: as written, not yet looked at. nullptr: an ordinary call.
Variable* call_with_open_scalar(Translator& tr, PyObject* callable, Args& args);

}  // namespace braze::capture
