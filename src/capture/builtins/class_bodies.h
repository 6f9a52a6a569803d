// Bodies of class statements, which run natively while their function is captured: once, and on what is real.
#pragma once
#include "capture/vars/function.h"

namespace braze::capture {

// Stops the capture where the body does more than to bind functions and constants: where it reads what may be another
// in a later call and cannot be guarded, calls code that may have effects, or sees or makes a change of the captured
// code's.
void check_class_body(Translator&, FunctionVariable* body);

}  // namespace braze::capture
